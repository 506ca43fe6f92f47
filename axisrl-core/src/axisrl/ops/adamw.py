"""AdamW over float32 master weights, with clipping, a schedule and a guard.

Gradients of half-type weights are summed over micro-batches in float32, beside the master copy.
An update whose gradient norm is not finite is not applied; the caller is told. The learning rate
depends on the number of steps taken alone, skipped ones included.

It does not compute gradients and writes no files.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Literal

import torch
from torch import Tensor

from axisrl.config.training import TrainingOptions
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
        named: Sequence[tuple[str, torch.nn.Parameter]],
        config: TrainingOptions,
        total_steps: int,
        master_weights: Literal["float32", "model"] = "float32",
        norm: Callable[[Mapping[str, Tensor]], Tensor] | None = None,
    ) -> None:
        """``norm`` is the 2-norm of all gradients, given those of ``named``: for ranks that divide
        a model among themselves."""
        self._config = config
        self._master_weights = master_weights
        self._norm = norm
        self._total_steps = total_steps
        self._halves: dict[str, torch.nn.Parameter] = {}
        self._masters = {name: self._master(name, parameter) for name, parameter in named}
        matrices = [name for name, master in self._masters.items() if master.ndim >= 2]
        others = [name for name in self._masters if name not in set(matrices)]
        self._order = matrices + others
        self._adamw = torch.optim.AdamW(
            [
                {
                    "params": [self._masters[n] for n in matrices],
                    "weight_decay": config.weight_decay,
                },
                {"params": [self._masters[n] for n in others], "weight_decay": 0.0},
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

    def _master(self, name: str, parameter: torch.nn.Parameter) -> Tensor:
        if parameter.dtype == torch.float32 or self._master_weights == "model":
            return parameter
        master = parameter.detach().float()
        self._halves[name] = parameter

        def collect(half: Tensor) -> None:
            if half.grad is None:
                return
            if master.grad is None:
                master.grad = half.grad.float()
            else:
                master.grad.add_(half.grad)
            half.grad = None

        parameter.register_post_accumulate_grad_hook(collect)  # type: ignore[no-untyped-call]
        return master

    def gradients(self) -> list[Tensor]:
        """What was accumulated since the last step, one tensor a parameter, for changes in
        place."""
        found = []
        for master in self._masters.values():
            if master.grad is None:
                master.grad = torch.zeros_like(master)
            found.append(master.grad)
        return found

    def step(self) -> UpdateReport:
        """One update with the gradients accumulated since the last; then they are gone."""
        norm = self._clip()
        rate = learning_rate(self._config, self.steps, self._total_steps)
        applied = math.isfinite(norm)
        if applied:
            for group in self._adamw.param_groups:
                group["lr"] = rate
            self._adamw.step()
            self._refresh_halves()
            self.updates += 1
        self._adamw.zero_grad(set_to_none=True)
        self.steps += 1
        return UpdateReport(grad_norm=norm, learning_rate=rate, applied=applied)

    def _clip(self) -> float:
        """The norm of all gradients, which are scaled down to the limit where it is larger."""
        masters = list(self._masters.values())
        found = dict(zip(self._masters, self.gradients(), strict=True))
        limit = self._config.max_grad_norm or math.inf
        if self._norm is None:
            return float(torch.nn.utils.clip_grad_norm_(masters, limit))
        norm = self._norm(found)
        torch.nn.utils.clip_grads_with_norm_(masters, limit, norm)
        return float(norm)

    @torch.no_grad()
    def _refresh_halves(self) -> None:
        for name, half in self._halves.items():
            half.copy_(self._masters[name])

    def beside_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor held beside the model's, with a name of its own."""
        for name, master in self._masters.items():
            if name in self._halves:
                yield f"master/{name}", master
            if master.grad is not None:
                yield f"gradient/{name}", master.grad
            for what, value in self._adamw.state.get(master, {}).items():
                yield f"{what}/{name}", value

    def tensors(self) -> dict[str, Tensor]:
        """Everything ``restore`` needs besides the counters and the model's own weights."""
        found = {
            f"{moment}/{name}": self._adamw.state[master][moment]
            for name, master in self._masters.items()
            for moment in _MOMENTS
            if self.updates
        }
        return found | {f"master/{name}": self._masters[name] for name in self._halves}

    def restore(self, tensors: Mapping[str, Tensor], *, steps: int, updates: int) -> None:
        """Inverse of ``tensors``, after the model's weights were put back.

        Raises ``KeyError`` for a missing tensor and ``RuntimeError`` for one of another shape.
        """
        with torch.no_grad():
            for name in self._halves:
                self._masters[name].copy_(tensors[f"master/{name}"])
        state = {
            index: {
                "step": torch.tensor(float(updates)),
                **{m: self._like_master(name, tensors[f"{m}/{name}"]) for m in _MOMENTS},
            }
            for index, name in enumerate(self._order)
            if updates
        }
        groups = self._adamw.state_dict()["param_groups"]
        self._adamw.load_state_dict({"state": state, "param_groups": groups})
        self.steps, self.updates = steps, updates

    def _like_master(self, name: str, tensor: Tensor) -> Tensor:
        return torch.empty_like(self._masters[name]).copy_(tensor)
