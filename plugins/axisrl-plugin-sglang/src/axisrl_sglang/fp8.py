"""Weights in FP8: e4m3 values, one float32 scale for each block of 128 x 128 (DeepSeek-V3, arXiv
2412.19437).

For a block W: ``weight_scale_inv`` s = max|W| / 448 and ``weight`` q = round(W / s), so that W is
about s q. A value's error is at most s 2^-4 of its own rounded size above the smallest normal (e4m3
has 3 bits after the point), and s 2^-10 below it.

It does not decide what is quantised: the served model's parameters do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from axisrl_sglang.blocks import BLOCK

SCALE = "weight_scale_inv"
_LARGEST = torch.finfo(torch.float8_e4m3fn).max
_FUSED = {
    "q_proj": "qkv_proj",
    "k_proj": "qkv_proj",
    "v_proj": "qkv_proj",
    "gate_proj": "gate_up_proj",
    "up_proj": "gate_up_proj",
}


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """FP8 values of a matrix (rows, columns), and the scales of its blocks, float32
    (ceil(rows / 128), ceil(columns / 128)). A block of zeros has scale 1."""
    rows, columns = weight.shape
    padded = functional.pad(weight.float(), (0, -columns % BLOCK, 0, -rows % BLOCK))
    blocks = padded.view(-(-rows // BLOCK), BLOCK, -(-columns // BLOCK), BLOCK)
    scale = blocks.abs().amax(dim=(1, 3)) / _LARGEST
    scale = torch.where(scale > 0, scale, torch.ones_like(scale))
    values = (blocks / scale[:, None, :, None]).clamp(-_LARGEST, _LARGEST)
    whole = values.to(torch.float8_e4m3fn).view(padded.shape)
    return whole[:rows, :columns].contiguous(), scale


def for_blocks(model: Any, received: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``received``, quantised where the served model holds FP8 blocks. Raises ``ValueError`` where
    its scales are of another kind."""
    blocked = _blocked(model)
    found: dict[str, Tensor] = {}
    for name, tensor in received.items():
        if tensor.ndim == 2 and _modules(name) & blocked and tensor.element_size() > 1:
            found[name], found[name.removesuffix("weight") + SCALE] = quantised(tensor)
        else:
            found[name] = tensor
    return found


def _blocked(model: Any) -> set[str]:
    """Modules of the model, fused as SGLang has them, whose weights are FP8 blocks."""
    modules = set()
    for name, parameter in model.named_parameters():
        if not name.endswith(SCALE):
            continue
        if parameter.dtype != torch.float32 or getattr(parameter, "format_ue8m0", False):
            raise ValueError(
                f"{name}: SGLang holds scales as powers of two on this GPU; set "
                "engine.sglang.fp8_gemm_runner_backend to triton"
            )
        modules.add(name.rpartition(".")[0])
    return modules


def _modules(name: str) -> set[str]:
    """What the module of a tensor may be called in the served model."""
    module, _, kind = name.rpartition(".")
    if kind != "weight":
        return set()
    parent, _, leaf = module.rpartition(".")
    fused = f"{parent}.{_FUSED.get(leaf, leaf)}"
    return {module, fused, f"{module.partition('.experts.')[0]}.experts"}
