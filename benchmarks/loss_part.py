"""The two ways from hidden states to a gradient that ``loss_cost.py`` compares.

Both get the same hidden states, output matrix and labels, and leave the gradients of the first two.
It keeps no time.

Shapes: ``M`` trained tokens, ``H`` hidden size, ``V`` vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor
from torch.nn import functional

from axisrl.config.schema import EntropyConfig, KlConfig
from axisrl.ops.head_plan import head_plan
from axisrl.ops.logprobs import token_logprobs
from axisrl.ops.objective import Objective
from axisrl.plugins import Kind
from axisrl.plugins.components import ComponentRef
from axisrl.plugins.manager import PluginManager
from axisrl.protocols import LossInputs
from axisrl.types import BuildContext
from axisrl_local.trainer_config import TrainerConfig

VARIANTS = ("grpo", "entropy", "kl", "icepop")
"""``grpo/grpo`` alone; with an entropy bonus; with a k3 penalty against given reference
log-probabilities; with ``icepop/icepop``."""
PLAIN = "plain"
"""The side that is compared with."""


class Inputs(NamedTuple):
    """What the model's body and the batch give; the first two take gradients."""

    hidden_MH: Tensor
    weight_VH: Tensor
    labels_M: Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of one measurement."""

    tokens: int
    vocabulary: int
    hidden: int

    def inputs(self, device: torch.device, dtype: torch.dtype) -> Inputs:
        """Random ones from a seed; logits have a standard deviation of about 2."""
        generator = torch.Generator(device).manual_seed(0)
        hidden_MH, weight_VH = (
            torch.randn(rows, self.hidden, generator=generator, device=device)
            for rows in (self.tokens, self.vocabulary)
        )
        weight_VH.mul_(2 * self.hidden**-0.5)
        labels_M = torch.randint(
            self.vocabulary, (self.tokens,), generator=generator, device=device
        )
        return Inputs(
            hidden_MH.to(dtype).requires_grad_(), weight_VH.to(dtype).requires_grad_(), labels_M
        )


class Way(Protocol):
    """From inputs to a loss, its gradient with it."""

    def __call__(self, inputs: Inputs) -> Tensor:
        """The loss, a number; the gradients are in ``.grad``."""
        ...


def cross_entropy(inputs: Inputs) -> Tensor:
    """Plain PyTorch: all logits, in float32, then ``cross_entropy``."""
    logits_MV = (inputs.hidden_MH @ inputs.weight_VH.T).float()
    loss = functional.cross_entropy(logits_MV, inputs.labels_M)
    loss.backward()  # type: ignore[no-untyped-call]
    return loss.detach()


class LossPart:
    """axisrl's: the head as ``local/trainer`` computes it with ``config``, then the objective.

    The batch is on policy and every advantage is 1. GRPO's gradient is then that of
    cross-entropy, and so it stays with a k3 penalty and with icepop.
    """

    def __init__(self, variant: str, inputs: Inputs, config: TrainerConfig) -> None:
        self._objective = objective(variant)
        entropy = "entropy" in self._objective.needs
        self._plan = head_plan(config, inputs.weight_VH.device, entropy=entropy)
        with torch.no_grad():
            logprobs_M, _ = self._head(inputs)
        ones_M = torch.ones_like(logprobs_M)
        self._weights_M = ones_M / len(ones_M)
        self._columns = {
            "mask_N": ones_M.bool(),
            "advantages_N": ones_M,
            "rollout_logprobs_N": logprobs_M,
            "old_logprobs_N": logprobs_M,
            "reference_logprobs_N": logprobs_M,
            "trajectory_N": torch.arange(len(ones_M), device=ones_M.device) // 256,
        }

    def __call__(self, inputs: Inputs) -> Tensor:
        """The objective's value."""
        logprobs_M, entropy_M = self._head(inputs)
        batch = LossInputs(logprobs_N=logprobs_M, entropy_N=entropy_M, **self._columns)
        loss = (self._objective(batch).per_token_N * self._weights_M).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    @property
    def cross_entropy(self) -> float:
        """Mean of -log-probability over the batch that this was made with."""
        return -float(self._columns["rollout_logprobs_N"].mean())

    def _head(self, inputs: Inputs) -> tuple[Tensor, Tensor]:
        temperature_M = torch.ones(len(inputs.labels_M), device=inputs.labels_M.device)
        return token_logprobs(*inputs, temperature_M, self._plan)


def objective(variant: str) -> Objective:
    """What the trainer gets for the variant, its parts built by their plugins."""
    manager = PluginManager.discover()
    manager.activate(["grpo"])
    corrections = []
    if variant == "icepop":
        manager.activate(["icepop"])
        corrections.append(("icepop", _built(manager, "correction", "icepop/icepop")))
    return Objective(
        _built(manager, "loss", "grpo/grpo"),
        corrections,
        KlConfig(coef=0.001 if variant == "kl" else 0.0),
        EntropyConfig(coef=0.01 if variant == "entropy" else 0.0),
    )


def _built(manager: PluginManager, kind: Kind, use: str) -> Any:
    return manager.build(kind, ComponentRef(kind=kind, use=use), BuildContext(run_dir=Path()))
