"""Activations, and names in Megatron's annotations."""

import torch


class SwiGLU(torch.nn.Module):
    def __init__(self, *, cache_quantized_input=False):
        super().__init__()

    def forward(self, both):
        gate, up = both.chunk(2, dim=-1)
        return torch.nn.functional.silu(gate) * up


class FusibleOperation:
    pass


class Sequential:
    pass
