"""Options of the trainer. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from axisrl.config.base import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraOptions(Config):
    """A low-rank adapter (LoRA, arXiv 2106.09685) that is trained instead of the weights."""

    rank: int = 16
    """Rows of A and columns of B."""
    alpha: float = 32.0
    """The adapter is scaled by ``alpha / rank``."""
    dropout: float = 0.0
    """Share of a layer's inputs that the adapter does not see on gradient passes. Above 0 the
    ratio of a window's first update is no longer that of the policy that was sampled."""
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Linear layers that get one, by the end of their names (``q_proj``); ``all-linear`` is every
    one of attention and MLP."""
    update: Literal["merged", "adapter"] = "merged"
    """What engines are offered: ``merged`` full weights, or the ``adapter`` alone, which they add
    to the model they started with. A value model always offers merged weights."""

    def __post_init__(self) -> None:
        if self.rank < 1 or self.alpha <= 0:
            raise ValueError(f"rank {self.rank} must be >= 1 and alpha {self.alpha} above 0")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout {self.dropout} is not in [0, 1)")
        if not self.targets:
            raise ValueError("targets is empty; name layers, or all-linear")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainerConfig(Config):
    """Options of ``local/trainer``."""

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
    master_weights: Literal["float32", "model"] = "float32"
    """What the optimizer updates: ``float32`` keeps such a copy of weights that compute in
    bfloat16; ``model`` updates them in their own type (less memory; small updates are lost)."""
    recompute: bool = False
    """Keep one activation a layer and compute the rest again in the backward pass."""
    chunk_tokens: int | None = None
    """Tokens whose logits exist at once; null is 4096 on CUDA and 1024 elsewhere."""
    kept_logits_mib: int | None = None
    """What a micro-batch may keep, in the size of its logits, for its backward pass; chunks beyond
    it are computed twice. Null is 1/32 of the card's memory on CUDA and 512 elsewhere."""
    lora: LoraOptions | None = None
    """Train a low-rank adapter (``rank``, ``alpha``, ``dropout``, ``targets``, ``update``) and keep
    the weights as they are; null trains the weights. A frozen model ignores it."""
    transport: Literal["shared_memory", "disk", "cuda_ipc"] = "shared_memory"
    """Where new weights are offered: in memory shared by the machine, in the run folder, or on the
    trainer's GPU, where an engine on the same GPU reads them (``sglang/engine``)."""
    bucket_mib: int = 2048
    """Size of the flat buffers into which ``cuda_ipc`` copies weights."""

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
        if self.bucket_mib < 1:
            raise ValueError(f"bucket_mib {self.bucket_mib} must be >= 1")
        if self.chunk_tokens is not None and self.chunk_tokens < 1:
            raise ValueError(f"chunk_tokens {self.chunk_tokens} must be >= 1, or null")
        if self.kept_logits_mib is not None and self.kept_logits_mib < 0:
            raise ValueError(f"kept_logits_mib {self.kept_logits_mib} must be >= 0, or null")
