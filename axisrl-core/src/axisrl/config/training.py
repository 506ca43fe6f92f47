"""Options that every trainer backend has, whatever holds its model.

A backend's own options extend this class, so that a recipe changes trainers without changing its
learning rate. It computes nothing (:mod:`axisrl.ops` does).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from axisrl.config.base import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingOptions(Config):
    """Optimizer, schedule, head and the size of what is sent."""

    lr: float = 1e-6
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """What the learning rate does between warm-up and the last update."""
    warmup_steps: int = 0
    """Updates over which the learning rate rises linearly to its peak."""
    min_lr_ratio: float = 0.0
    """Where ``linear`` and ``cosine`` end, as a fraction of ``lr``."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    eps: float = 1e-8
    """Added to the root of the second moment."""
    weight_decay: float = 0.0
    """Decoupled decay of matrices; norms and biases never decay."""
    max_grad_norm: float = 1.0
    """Gradients with a larger global norm are scaled down to it; 0 measures only."""
    distributed_optimizer: bool = True
    """Ranks that share the batches divide float32 master weights and moments among themselves
    (ZeRO-1, arXiv 1910.02054): D of them hold 6 + 12 / D bytes a parameter of a bfloat16 model
    instead of 18, and over NCCL send as much as before. One rank holds everything."""
    chunk_tokens: int | None = None
    """Tokens whose logits exist at once; null is 4096 on CUDA and 1024 elsewhere."""
    kept_logits_mib: int | None = None
    """What a micro-batch may keep, in the size of its logits, for its backward pass; chunks beyond
    it are computed twice. Null is 1/32 of the card's memory on CUDA and 512 elsewhere."""
    transport: Literal["shared_memory", "disk", "cuda_ipc", "nccl"] = "shared_memory"
    """Where new weights are offered: in memory shared by the machine, in the run folder, on the
    trainer's GPU, where an engine on the same GPU reads them (``sglang/engine``), or from every
    rank's GPU over process groups, to engines on other GPUs and machines (without GPUs over
    gloo)."""
    transfer_timeout_s: float = 60.0
    """Longest that ``nccl`` waits for another process, and for a buffer to arrive."""
    bucket_mib: int = 2048
    """Size of the flat buffers into which ``cuda_ipc`` and ``nccl`` copy weights."""

    def __post_init__(self) -> None:
        if self.lr <= 0 or self.eps <= 0:
            raise ValueError(f"lr {self.lr} and eps {self.eps} must be above 0")
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas {self.betas} must be in [0, 1)")
        if not 0 <= self.min_lr_ratio <= 1:
            raise ValueError(f"min_lr_ratio {self.min_lr_ratio} is not in [0, 1]")
        if self.schedule == "constant" and self.min_lr_ratio:
            raise ValueError("min_lr_ratio has no meaning with schedule constant")
        if min(self.warmup_steps, self.weight_decay, self.max_grad_norm) < 0:
            raise ValueError("warmup_steps, weight_decay and max_grad_norm must be >= 0")
        if self.transfer_timeout_s <= 0:
            raise ValueError(f"transfer_timeout_s {self.transfer_timeout_s} must be above 0")
        if self.bucket_mib < 1:
            raise ValueError(f"bucket_mib {self.bucket_mib} must be >= 1")
        if self.chunk_tokens is not None and self.chunk_tokens < 1:
            raise ValueError(f"chunk_tokens {self.chunk_tokens} must be >= 1, or null")
        if self.kept_logits_mib is not None and self.kept_logits_mib < 0:
            raise ValueError(f"kept_logits_mib {self.kept_logits_mib} must be >= 0, or null")
