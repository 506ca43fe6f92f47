"""A low-rank adapter as tensors: their names, the weight a module has with one, peft's folder.

Formula (LoRA, arXiv 2106.09685)::

    W' = W + scale B A        A (rank, in), B (out, rank), scale = alpha / rank

Trainer and receivers call the same function, so that they hold the same bits. It neither trains an
adapter (a trainer backend does) nor needs peft.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

FOLDER_PREFIX = "base_model.model."
"""What peft writes before a module's name."""


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


def write_folder(
    folder: Path, tensors: Mapping[str, Tensor], *, rank: int, scale: float, targets: Sequence[str]
) -> None:
    """Make ``folder`` an adapter as peft writes it: ``tensors`` by their names in a weight update,
    and the names of the modules that have one, or their ends."""
    folder.mkdir()
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "r": rank,
        "lora_alpha": scale * rank,
        "lora_dropout": 0.0,
        "bias": "none",
        "target_modules": list(targets),
    }
    text = json.dumps(config, indent=2)
    (folder / "adapter_config.json").write_text(f"{text}\n", encoding="utf-8")
    named = {f"{FOLDER_PREFIX}{name}": tensor.contiguous() for name, tensor in tensors.items()}
    save_file(named, folder / "adapter_model.safetensors", metadata={"format": "pt"})


def check_scale(saved: float | None, own: float | None) -> None:
    """Raise ``ValueError`` unless a saved trainer's adapter has the scale of this one's; None is no
    adapter."""
    if saved != own:
        told = [f"an adapter of scale {scale}" if scale else "no adapter" for scale in (saved, own)]
        raise ValueError(f"it has {told[0]}, this trainer {told[1]}")
