"""What an optimizer updates: master weights of a model's parameters, and where their gradients go.

1. :class:`Masters` are whole. Half-type weights have a float32 copy, and their gradients are summed
   over micro-batches in float32 beside it; other weights are their own masters.
2. :class:`DividedMasters` are a part of each parameter, one a rank (ZeRO-1, arXiv 1910.02054): a
   rank collects whole gradients, gets its part of their sum over the ranks, and gives the others
   its part of the updated weights. AdamW works number by number, so what divides a parameter is of
   no consequence to it.

Of ``D`` ranks each holds, in bytes per parameter of a bfloat16 model, 2 for the weight, 4 for the
gradient and 12 / D for master and moments. A sum over ranks sends its parts to their ranks, then
all parts to all ranks: the division does the same (over NCCL), with the update in between.

torch's own pieces do less or more. ``ZeroRedundancyOptimizer`` divides the state of an optimizer
over the parameters themselves (no float32 masters of bfloat16 weights), whole parameters at a time
(an embedding may be a fifth of a model), and leaves gradients to be summed whole. FSDP2 divides the
weights as well, and gathers them again for each pass. Megatron's ``DistributedOptimizer`` takes
CUDA tensors alone, through buffers that become the model's parameters.

They compute no update (:mod:`axisrl.ops.adamw`).

Shapes: ``D`` ranks, ``P`` numbers of a rank's part.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from axisrl.ops.rank_group import RankGroup, buckets

Kind = Literal["float32", "model"]
Named = Sequence[tuple[str, torch.nn.Parameter]]


class Masters:
    """Masters of ``named`` parameters, whole, in that order."""

    def __init__(self, named: Named, kind: Kind) -> None:
        self._halves: dict[str, torch.nn.Parameter] = {}
        self.tensors = {name: self._master(name, parameter, kind) for name, parameter in named}
        """What is to be updated, with its gradient as ``grad``."""

    def _master(self, name: str, parameter: torch.nn.Parameter, kind: Kind) -> Tensor:
        if parameter.dtype == torch.float32 or kind == "model":
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

    def gradients(self) -> dict[str, Tensor]:
        """What was collected, for changes in place."""
        for master in self.tensors.values():
            if master.grad is None:
                master.grad = torch.zeros_like(master)
        return {name: master.grad for name, master in self.tensors.items()}  # type: ignore[misc]

    def reduce(self) -> None:
        """Nothing: what was collected is where it is needed."""

    def for_norm(self) -> dict[str, Tensor]:
        """Of each parameter, a tensor with the 2-norm of its gradient."""
        return self.gradients()

    @torch.no_grad()
    def refresh(self) -> None:
        """Give the updated numbers to the weights."""
        for name, half in self._halves.items():
            half.copy_(self.tensors[name])

    def beside_weights(self) -> Iterator[tuple[str, Tensor]]:
        """What is held beside the model's weights, with a name of its own."""
        for name, master in self.tensors.items():
            if name in self._halves:
                yield f"master/{name}", master
            if master.grad is not None:
                yield f"gradient/{name}", master.grad

    def whole(self, name: str, value: Tensor) -> Tensor:
        """``value``, shaped as the master of ``name``, as of the whole parameter."""
        return value

    def saved(self) -> Iterator[tuple[str, Tensor]]:
        """Masters that are not the weights themselves, whole: ``master/<parameter>``."""
        for name in self._halves:
            yield f"master/{name}", self.tensors[name]

    def own(self, name: str, value: Tensor) -> Tensor:
        """Inverse of :meth:`whole`, a copy. Raises ``RuntimeError`` for another shape."""
        return torch.empty_like(self.tensors[name]).copy_(value)

    @torch.no_grad()
    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """Inverse of :meth:`saved`, after the model's weights were put back.

        Raises ``KeyError`` for one that is missing.
        """
        for name in self._halves:
            self.tensors[name].copy_(saved[f"master/{name}"])


class Division:
    """How tensors are divided over the ranks of a group: end to end, into parts of one length, the
    last ones filled up with zeros."""

    def __init__(self, ranks: RankGroup, group: Any = None) -> None:
        """``group`` is one of torch's; None is all of ``ranks``, through the CPU."""
        self._ranks = ranks
        self._group = group
        self._rank, self._size = ranks.place(group)

    def own(self, value: Tensor) -> Tensor:
        """(P,): this rank's part, a copy."""
        return self._rows(value)[self._rank].clone()

    def _rows(self, value: Tensor) -> Tensor:
        missing = -value.numel() % self._size
        flat = value.reshape(-1)
        return torch.nn.functional.pad(flat, (0, missing)).view(self._size, -1)

    def sums(self, values: Sequence[Tensor]) -> list[Tensor]:
        """(P,) each: this rank's parts of the sums over the ranks, in float32."""
        rows = [self._rows(value.float()) for value in values]
        own = self._ranks.scatter_sum(torch.cat(rows, dim=1), self._group)
        return list(own.split([row.shape[1] for row in rows]))  # type: ignore[no-untyped-call]

    def wholes(self, parts: Sequence[Tensor], like: Sequence[Tensor]) -> list[Tensor]:
        """Inverse of :meth:`own` for tensors of one type, shaped as ``like``."""
        rows = self._ranks.rows(torch.cat(list(parts)), self._group)
        split = rows.split([len(part) for part in parts], dim=1)  # type: ignore[no-untyped-call]
        return [
            each.reshape(-1)[: shape.numel()].view_as(shape)
            for each, shape in zip(split, like, strict=True)
        ]

    def add(self, value: Tensor) -> None:
        """Replace a small tensor by its sum over the ranks, in float32."""
        self._ranks.sum_([value], self._group)


class DividedMasters:
    """This rank's parts of the masters of ``named`` parameters, in that order. What has ``Masters``
    for a name does the same; every rank must call it."""

    def __init__(self, named: Named, kind: Kind, division: Callable[[str], Division]) -> None:
        """``division``: over which ranks the parameter of that name is divided."""
        self._parameters = dict(named)
        self._kind = kind
        self._collected: dict[str, Tensor] = {}
        self._divisions = {name: division(name) for name in self._parameters}
        self.tensors: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            wide = self._divisions[name].own(parameter.detach()).to(self._dtype(parameter))
            self.tensors[name] = wide
            self._collect(name, parameter)

    def _dtype(self, parameter: Tensor) -> torch.dtype:
        return parameter.dtype if self._kind == "model" else torch.float32

    def _collect(self, name: str, parameter: torch.nn.Parameter) -> None:
        collected, dtype = self._collected, self._dtype(parameter)

        def collect(weight: Tensor) -> None:
            if weight.grad is None:
                return
            if name in collected:
                collected[name].add_(weight.grad)
            else:
                collected[name] = weight.grad.to(dtype)
            weight.grad = None

        parameter.register_post_accumulate_grad_hook(collect)  # type: ignore[no-untyped-call]

    def gradients(self) -> dict[str, Tensor]:
        """What this rank collected, whole, for changes in place."""
        return {name: self._gradient(name) for name in self._parameters}

    def _gradient(self, name: str) -> Tensor:
        if name not in self._collected:
            like = self._parameters[name]
            self._collected[name] = torch.zeros_like(like, dtype=self._dtype(like)).detach()
        return self._collected[name]

    def _together(self) -> Iterator[tuple[Division, list[str]]]:
        """Names whose parts travel at once."""
        kinds: dict[tuple[Division, torch.dtype], list[str]] = defaultdict(list)
        for name, parameter in self._parameters.items():
            kinds[self._divisions[name], parameter.dtype].append(name)
        for (division, _), names in kinds.items():
            for at in buckets([self._parameters[name].numel() for name in names]):
                yield division, names[at]

    @torch.no_grad()
    def reduce(self) -> None:
        """Give each master its part of the gradient that the ranks collected."""
        for division, names in self._together():
            sums = division.sums([self._gradient(name) for name in names])
            for name, part in zip(names, sums, strict=True):
                del self._collected[name]
                self.tensors[name].grad = part.to(self.tensors[name].dtype)

    @torch.no_grad()
    def for_norm(self) -> dict[str, Tensor]:
        """After :meth:`reduce`: of each parameter, a number that is the 2-norm of its gradient."""
        by_division: dict[Division, list[str]] = defaultdict(list)
        for name, division in self._divisions.items():
            by_division[division].append(name)
        found: dict[str, Tensor] = {}
        for division, names in by_division.items():
            norms = [torch.linalg.vector_norm(self.tensors[name].grad) for name in names]
            squares = torch.stack(norms).float().square()
            division.add(squares)
            found.update(zip(names, squares.sqrt(), strict=True))
        return {name: found[name] for name in self.tensors}

    @torch.no_grad()
    def refresh(self) -> None:
        """Give the updated numbers of all ranks to the weights."""
        for division, names in self._together():
            weights = [self._parameters[name] for name in names]
            parts = [self.tensors[name].to(weights[0].dtype) for name in names]
            for weight, value in zip(weights, division.wholes(parts, weights), strict=True):
                weight.copy_(value)

    def beside_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See :class:`Masters`."""
        for name, master in self.tensors.items():
            yield f"master/{name}", master
            if master.grad is not None:
                yield f"part/{name}", master.grad
        for name, value in self._collected.items():
            yield f"gradient/{name}", value

    def whole(self, name: str, value: Tensor) -> Tensor:
        """See :class:`Masters`."""
        return self._divisions[name].wholes([value], [self._parameters[name]])[0]

    def saved(self) -> Iterator[tuple[str, Tensor]]:
        """See :class:`Masters`."""
        for name, parameter in self._parameters.items():
            if parameter.dtype != self._dtype(parameter):
                yield f"master/{name}", self.whole(name, self.tensors[name])

    def own(self, name: str, value: Tensor) -> Tensor:
        """See :class:`Masters`."""
        if value.shape != self._parameters[name].shape:
            raise RuntimeError(
                f"{name} has {tuple(value.shape)}, not {tuple(self._parameters[name].shape)}"
            )
        return torch.empty_like(self.tensors[name]).copy_(self._divisions[name].own(value))

    @torch.no_grad()
    def restore(self, saved: Mapping[str, Tensor]) -> None:
        """See :class:`Masters`."""
        for name, parameter in self._parameters.items():
            half = parameter.dtype != self._dtype(parameter)
            value = saved[f"master/{name}"] if half else parameter.detach()
            self.tensors[name].copy_(self.own(name, value))
