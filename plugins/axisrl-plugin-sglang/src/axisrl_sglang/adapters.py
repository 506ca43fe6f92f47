"""Low-rank adapters (LoRA, arXiv 2106.09685) that SGLang serves beside the base weights.

1. An update is a file of A and B. It becomes a folder as peft writes them, which SGLang loads under
   a name of its own; requests name it, and so do the prefixes SGLang caches.
2. SGLang wraps the layers that adapters may act on, and its loaders do not find full weights in
   them any more: an engine takes adapters alone, or full weights alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors.torch import load_file

from axisrl.errors import WeightSyncError
from axisrl.ops import low_rank
from axisrl.ops.checksum import weights_checksum
from axisrl.types import WeightUpdate
from axisrl_sglang.config import LoraOptions
from axisrl_sglang.messages import Adapter

FILES = ("shared_memory", "disk")
_TOGETHER = {
    "q_proj": ("v_proj",),
    "k_proj": ("q_proj", "v_proj"),
    "v_proj": ("q_proj",),
    "up_proj": ("gate_proj",),
}
"""Modules that SGLang holds as one: without which others it does not load an adapter of a part."""


def lora_arguments(options: LoraOptions) -> dict[str, Any]:
    """Server arguments that make room for the adapter that is served and the one that comes."""
    return {
        "enable_lora": True,
        "max_lora_rank": options.rank,
        "lora_target_modules": list(options.targets),
        "max_loras_per_batch": 2,
    }


def described_adapter(update: WeightUpdate, options: LoraOptions) -> Adapter:
    """What the SGLang process needs to know. Raises ``WeightSyncError`` for what it cannot
    take."""
    meta = update.adapter
    if meta is None:
        raise WeightSyncError(
            f"weight update {update.version} is full weights, and SGLang started with engine.lora "
            "takes adapters alone",
            fix="let the trainer offer adapters: trainer.lora.update adapter, or leave engine.lora "
            "out",
        )
    if update.transport not in FILES:
        raise WeightSyncError(
            f"sglang/engine cannot receive an adapter by {update.transport!r}",
            fix="set trainer.transport=shared_memory: an adapter is small",
        )
    if meta.rank > options.rank:
        raise WeightSyncError(
            f"weight update {update.version} is an adapter of rank {meta.rank}, over "
            f"engine.lora.rank {options.rank}",
            fix=f"set engine.lora.rank to {meta.rank}",
        )
    names = sorted({target.rpartition(".")[2] for target in meta.targets})
    if lacking := [name for name in names if name not in options.targets]:
        raise WeightSyncError(
            f"weight update {update.version} adapts {', '.join(lacking)}, which "
            "engine.lora.targets leaves out",
            fix=f"set engine.lora.targets=[{', '.join(names)}]",
        )
    _require_together(update.version, meta.targets)
    return Adapter(
        update.version, update.location, update.checksum, meta.rank, meta.scale, tuple(names)
    )


def _require_together(version: int, targets: Sequence[str]) -> None:
    known = frozenset(targets)
    for target in targets:
        parent, _, leaf = target.rpartition(".")
        lacking = [name for name in _TOGETHER.get(leaf, ()) if f"{parent}.{name}" not in known]
        if lacking:
            raise WeightSyncError(
                f"weight update {version} adapts {target} without {' and '.join(lacking)}, and "
                "SGLang holds them as one",
                fix=f"add {', '.join(lacking)} to trainer.lora.targets, or set it to all-linear",
            )


def write_folder(adapter: Adapter, folder: Path) -> str:
    """Write the adapter as peft does, which SGLang reads; the checksum of what was received."""
    received = load_file(adapter.location)
    low_rank.write_folder(
        folder, received, rank=adapter.rank, scale=adapter.scale, targets=adapter.targets
    )
    return weights_checksum(received)
