"""AdamW over float32 master weights, with clipping, a schedule and a guard.

Gradients of half-type weights are summed over micro-batches in float32, beside the master copy
(:mod:`axisrl.ops.masters`); ranks may divide masters and moments among themselves.
An update whose gradient norm is not finite is not applied; the caller is told. The learning rate
depends on the number of steps taken alone, skipped ones included.

It does not compute gradients and writes no files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Literal

import torch
from torch import Tensor

from axisrl.config.training import TrainingOptions
from axisrl.ops.masters import DividedMasters, Division, Masters, Named
from axisrl.ops.step_totals import UpdateReport

_MOMENTS = ("exp_avg", "exp_avg_sq")


def learning_rate(config: TrainingOptions, step: int, total_steps: int) -> float:
    """Rate of update ``step`` (from 0) of ``total_steps``."""
    if step < config.warmup_steps:
        return config.lr * (step + 1) / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    span = max(1, total_steps - config.warmup_steps)
    progress = min(1.0, (step - config.warmup_steps) / span)
    if config.schedule == "cosine":
        progress = 0.5 * (1.0 - math.cos(math.pi * progress))
    return config.lr * (1.0 - (1.0 - config.min_lr_ratio) * progress)


class Optimizer:
    """Owns the master weights of ``named`` parameters, in that order."""

    def __init__(
        self,
        named: Named,
        config: TrainingOptions,
        total_steps: int,
        master_weights: Literal["float32", "model"] = "float32",
        norm: Callable[[Mapping[str, Tensor]], Tensor] | None = None,
        division: Callable[[str], Division] | None = None,
    ) -> None:
        """``norm`` is the 2-norm of all gradients, given those of ``named`` (or numbers with their
        norms): for ranks that divide a model among themselves. ``division``: over which ranks the
        state of the parameter of that name is divided; without, each holds all of it."""
        self._config = config
        self._norm = norm
        self._total_steps = total_steps
        self._masters: Masters | DividedMasters
        if division is None:
            self._masters = Masters(named, master_weights)
        else:
            self._masters = DividedMasters(named, master_weights, division)
        tensors = self._masters.tensors
        matrices = [name for name, parameter in named if parameter.ndim >= 2]
        others = [name for name in tensors if name not in set(matrices)]
        self._order = matrices + others
        self._adamw = torch.optim.AdamW(
            [
                {"params": [tensors[n] for n in matrices], "weight_decay": config.weight_decay},
                {"params": [tensors[n] for n in others], "weight_decay": 0.0},
            ],
            lr=config.lr,
            betas=config.betas,
            eps=config.eps,
            fused=True,
        )
        self.steps = 0
        """Calls of ``step``."""
        self.updates = 0
        """Steps that were applied."""

    @property
    def divided(self) -> bool:
        """True where ranks divide the state: :meth:`step` sums gradients over them, and all of them
        must make it, and go through :meth:`saved`."""
        return isinstance(self._masters, DividedMasters)

    def gradients(self) -> list[Tensor]:
        """What was accumulated since the last step, one tensor a parameter, for changes in
        place."""
        return list(self._masters.gradients().values())

    def step(self) -> UpdateReport:
        """One update with the gradients accumulated since the last; then they are gone."""
        self._masters.reduce()
        norm = self._clip()
        rate = learning_rate(self._config, self.steps, self._total_steps)
        applied = math.isfinite(norm)
        if applied:
            for group in self._adamw.param_groups:
                group["lr"] = rate
            self._adamw.step()
            self._masters.refresh()
            self.updates += 1
        self._adamw.zero_grad(set_to_none=True)
        self.steps += 1
        return UpdateReport(grad_norm=norm, learning_rate=rate, applied=applied)

    def _clip(self) -> float:
        """The norm of all gradients, which are scaled down to the limit where it is larger."""
        measured = self._masters.for_norm()
        if self._norm is None:
            norm = torch.nn.utils.get_total_norm(measured.values())
        else:
            norm = self._norm(measured)
        limit = self._config.max_grad_norm or math.inf
        torch.nn.utils.clip_grads_with_norm_(self._masters.tensors.values(), limit, norm)
        return float(norm)

    def beside_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor held beside the model's, with a name of its own."""
        yield from self._masters.beside_weights()
        for name, master in self._masters.tensors.items():
            for what, value in self._adamw.state.get(master, {}).items():
                yield f"{what}/{name}", value

    def saved(self) -> Iterator[tuple[str, Tensor]]:
        """Everything ``restore`` needs besides the counters and the model's own weights, whole."""
        for name, master in self._masters.tensors.items():
            for moment in _MOMENTS if self.updates else ():
                value = self._adamw.state[master][moment]
                yield f"{moment}/{name}", self._masters.whole(name, value)
        yield from self._masters.saved()

    def tensors(self) -> dict[str, Tensor]:
        """:meth:`saved`, all at once."""
        return dict(self.saved())

    def restore(self, tensors: Mapping[str, Tensor], *, steps: int, updates: int) -> None:
        """Inverse of ``tensors``, after the model's weights were put back.

        Raises ``KeyError`` for a missing tensor and ``RuntimeError`` for one of another shape.
        """
        self._masters.restore(tensors)
        state = {
            index: {
                "step": torch.tensor(float(updates)),
                **{m: self._masters.own(name, tensors[f"{m}/{name}"]) for m in _MOMENTS},
            }
            for index, name in enumerate(self._order)
            if updates
        }
        groups = self._adamw.state_dict()["param_groups"]
        self._adamw.load_state_dict({"state": state, "param_groups": groups})
        self.steps, self.updates = steps, updates
