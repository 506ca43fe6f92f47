"""The value head: one linear layer, hidden to 1 with bias, on the body of a language model.

1. It is the ``score`` layer of transformers' token-classification models, so a saved value model is
   a folder that ``AutoModelForTokenClassification`` loads. The language model's output layer is
   never loaded; a tied embedding stays, as the embedding.
2. A folder without one gets it from the run's seed (:mod:`axisrl.ops.value_head`).
3. It computes in float32 whatever the body's dtype: a value in bfloat16 has two or three digits.

Sampling temperature does not reach it.

Shapes: ``M`` trained tokens, ``H`` hidden size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from axisrl.errors import EnvironmentProblem
from axisrl.ops.value_head import drawn_value_head
from axisrl.types import ModelSpec

HEAD = "score"
PARAMETERS = frozenset({f"{HEAD}.weight", f"{HEAD}.bias"})


def check_value_head(model: Any, spec: ModelSpec) -> None:
    """Raises ``EnvironmentProblem`` unless ``model`` ends in a linear layer to 1 with bias."""
    head: Any = getattr(model, HEAD, None)
    linear = isinstance(head, torch.nn.Linear) and head.bias is not None
    if not linear or len(head.bias) != 1:
        raise EnvironmentProblem(
            f"model {spec.name!r} cannot carry a value head",
            fix="use a Llama, Qwen2 or Qwen3 type model for value.model",
        )


def prepare_value_head(model: Any, *, made: bool, seed: int) -> None:
    """Put the head in float32 and, where the folder had none (``made``), draw its weights."""
    head = getattr(model, HEAD).float()
    if made:
        weight, bias = drawn_value_head(head.in_features, seed)
        with torch.no_grad():
            head.weight.copy_(weight)
            head.bias.copy_(bias)


def values_of(model: Any, hidden_MH: Tensor) -> Tensor:
    """V of each state, float32 (M,); differentiable in the head and ``hidden_MH``."""
    values_M1: Tensor = getattr(model, HEAD)(hidden_MH.float())
    return values_M1[:, 0]
