"""The norm of Megatron's layers: torch's, for tokens that ranks divide, too.

Megatron's own refuses sequence parallel without Apex. It computes nothing else.
"""

from __future__ import annotations

from typing import Any

from megatron.core.transformer import TransformerConfig
from torch import Tensor, nn


class Norm(nn.RMSNorm):
    """RMSNorm, made as Megatron makes a norm."""

    def __init__(
        self, config: TransformerConfig, hidden_size: int, eps: float = 1e-5, **options: Any
    ) -> None:
        """``options`` are what Megatron gives every norm, and none is used."""
        super().__init__(hidden_size, eps=eps)
        # As Megatron marks parameters that see a rank's own tokens alone.
        self.weight.sequence_parallel = config.sequence_parallel  # type: ignore[attr-defined]

    def forward(self, x: Tensor) -> Tensor:
        """In the weight's type, whatever that of ``x`` is: a residual stream may be float32."""
        normed: Tensor = super().forward(x).to(self.weight.dtype)
        return normed
