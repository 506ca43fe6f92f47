"""Megatron's mixture of experts, as the net uses it: its router, and how tokens reach experts.

It holds no experts: Megatron's layer spec does.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer.moe.router import TopKRouter
from torch import Tensor
from torch.nn import functional

from axisrl_megatron.device import is_megatrons

_DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


class Router(TopKRouter):  # type: ignore[misc]
    """Megatron's, whose logits need a CUDA device and, in 0.16, Transformer Engine."""

    def gating(self, input: Tensor) -> Tensor:
        """Logits (N, 1, experts) in ``moe_router_dtype``, or the input's type where that is
        None."""
        dtype = _DTYPES.get(self.config.moe_router_dtype, input.dtype)
        return functional.linear(input.to(dtype), self.weight.to(dtype))


def dispatch(device: torch.device, experts: int) -> dict[str, Any]:
    """Options of ``TransformerConfig``: what moves tokens to their experts."""
    if experts and not is_megatrons(device):  # one rank, which gathers from nobody
        return {"moe_token_dispatcher_type": "allgather", "variable_seq_lengths": False}
    return {"moe_token_dispatcher_type": "alltoall", "variable_seq_lengths": True}
