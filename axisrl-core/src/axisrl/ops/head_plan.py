"""How a head is computed: how much of its logits exists at once, and how much is kept.

It computes nothing (:mod:`axisrl.ops.logprobs` does).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from axisrl.config.training import TrainingOptions

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadPlan:
    """How the head is computed."""

    chunk_tokens: int
    kept_bytes: int
    entropy: bool
    """False leaves the entropy at 0 and spends nothing on it."""


def head_plan(config: TrainingOptions, device: torch.device, *, entropy: bool) -> HeadPlan:
    """The plan of a trainer on ``device``; what ``config`` leaves at null is chosen for it."""
    chunk_tokens, kept_bytes = 1024, 512 * _MIB
    if device.type == "cuda":
        # The longer a chunk, the less often the weight's gradient is read and written. The size
        # of a card is the same in every run; what is free of it is not.
        chunk_tokens, kept_bytes = 4096, torch.cuda.mem_get_info(device)[1] // 32
    if config.chunk_tokens is not None:
        chunk_tokens = config.chunk_tokens
    if config.kept_logits_mib is not None:
        kept_bytes = config.kept_logits_mib * _MIB
    return HeadPlan(chunk_tokens=chunk_tokens, kept_bytes=kept_bytes, entropy=entropy)
