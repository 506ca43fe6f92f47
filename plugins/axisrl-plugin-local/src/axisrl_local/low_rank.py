"""A low-rank adapter as tensors: their names, and the weight a module has with one.

Formula (LoRA, arXiv 2106.09685)::

    W' = W + scale B A        A (rank, in), B (out, rank), scale = alpha / rank

Trainer and receivers call the same function, so that they hold the same bits. It neither trains an
adapter (:mod:`axisrl_local.lora`) nor needs peft.
"""

from __future__ import annotations

import torch
from torch import Tensor


def weight_name(module: str) -> str:
    """Name of the weight that an adapter of ``module`` changes."""
    return f"{module}.weight"


def factor_names(module: str) -> tuple[str, str]:
    """Names of A and B of ``module`` in a weight update."""
    return f"{module}.lora_A.weight", f"{module}.lora_B.weight"


@torch.no_grad()
def merged(weight: Tensor, a: Tensor, b: Tensor, scale: float) -> Tensor:
    """``weight + scale b a`` in the weight's dtype, computed in at least float32."""
    wide = torch.promote_types(weight.dtype, torch.float32)
    return torch.addmm(weight.to(wide), b.to(wide), a.to(wide), alpha=scale).to(weight.dtype)
