"""Options of a low-rank adapter, whatever trainer backend trains it. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from axisrl.config.base import Config
from axisrl.errors import ConfigError


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

    def chosen(self, linear: Sequence[str]) -> list[str]:
        """Those of the ``linear`` layers of a model's body, by their full names, that get one.

        Raises ``ConfigError`` for a target that is none of them, with the ends of their names.
        """
        if self.targets == "all-linear":
            return list(linear)
        for wanted in self.targets:
            if not any(_is_called(name, wanted) for name in linear):
                known = sorted({name.rpartition(".")[2] for name in linear})
                raise ConfigError(
                    f"trainer.lora.targets: the model's body has no linear layer {wanted!r}",
                    fix=f"choose from {', '.join(known)}, or all-linear",
                )
        return [name for name in linear if any(_is_called(name, w) for w in self.targets)]


def _is_called(name: str, wanted: str) -> bool:
    return name == wanted or name.endswith(f".{wanted}")
