"""A net's weights in Hugging Face names: from a folder's files or given tensors, and back.

Files are read a tensor at a time, by every rank. On the way back, ranks that share the layers or
the experts put their parts together, a tensor at a time: all of them must go through the same
tensors. Stages hand theirs over (:mod:`axisrl_megatron.stages`). Into files that only a trainer
reads, each rank writes its own parts (:class:`Part`), and says where they lie.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, distributed

from axisrl.errors import EnvironmentProblem
from axisrl_megatron.layout import ModelShape
from axisrl_megatron.mesh import Mesh
from axisrl_megatron.rules import EMBEDDING, Rule, rule_of
from axisrl_megatron.stages import of_all_stages

_PLACES = "places"
Source = Callable[[str], Tensor]
"""Hugging Face name -> tensor. Raises ``KeyError`` for one that is not there."""


class Part(NamedTuple):
    """What one rank has of a Hugging Face tensor: from ``start`` on, along ``axis``."""

    name: str
    tensor: Tensor
    axis: int
    start: int


class NetWeights:
    """A rank's parameters, and how they are called elsewhere."""

    def __init__(
        self,
        parameters: Mapping[str, torch.nn.Parameter],
        head_size: int,
        shape: ModelShape,
        mesh: Mesh,
        copies: Collection[str] = (),
    ) -> None:
        """``copies``: those that are the embedding again, of which another rank has the first."""
        self._mesh = mesh
        self._copies = copies
        self._vocabulary = shape.vocabulary
        self._groups = shape.key_value_heads // mesh.layout.tensor
        self._head_size = head_size
        self._experts = shape.experts // mesh.layout.expert
        """So many are here."""
        self._parameters = parameters
        self._rules = {name: self._rule(name, mesh.place.expert) for name in parameters}

    def parts(self, tensors: Mapping[str, Tensor]) -> Iterator[Part]:
        """This rank's of ``tensors``, which have the parameters' names and shapes; of what several
        ranks have, the first one's."""
        for name, value in tensors.items():
            rule = self._rules[name]
            at = self._at(rule)
            skipped = name in self._copies or not self._first(rule)
            if skipped or (rule.axis is None and at):
                continue
            for piece, tensor in zip(rule.names, rule.split(value, self._groups), strict=True):
                axis = rule.axis or 0
                start = at * tensor.shape[axis]
                if rule.vocabulary:
                    tensor = tensor[: self._vocabulary - start]
                yield Part(piece, tensor, axis, start)

    def named(
        self, parameters: Collection[str] | None = None, *, everywhere: bool = False
    ) -> Iterator[tuple[str, Tensor]]:
        """Hugging Face name and tensor, whole, of all stages
        (:func:`axisrl_megatron.stages.of_all_stages`), in the order of the net; of all, or of
        those ``parameters`` that are here."""
        own = self._rules if parameters is None else parameters
        return of_all_stages(self._mesh, self._own(own), everywhere=everywhere)

    def _own(self, parameters: Iterable[str]) -> Iterator[tuple[str, Tensor]]:
        for name in parameters:
            rule = self._rules[name]
            if name in self._copies:
                continue
            parts = rule.split(self._parameters[name].detach(), self._groups)
            whole = [self._whole(part, rule) for part in parts]
            for place, tensors in enumerate(self._of_all_experts(whole, rule)):
                names = self._rule(name, place).names if rule.expert else rule.names
                yield from zip(names, tensors, strict=True)

    def made_of(self, names: Collection[str]) -> list[str]:
        """Parameters whose tensors are all among ``names``."""
        return [name for name, rule in self._rules.items() if set(rule.names) <= set(names)]

    def joined(self, parameter: str, source: Source) -> Tensor:
        """A tensor shaped as ``parameter``, from its Hugging Face tensors."""
        rule = self._rules[parameter]
        return rule.join([self._part(source(name), rule) for name in rule.names])

    def divided(self, parameter: str) -> bool:
        """True where each rank has a part of the parameter."""
        return self._rules[parameter].axis is not None

    def counts(self, parameter: str) -> bool:
        """False of a copy."""
        return parameter not in self._copies

    def of_expert(self, parameter: str) -> bool:
        """True where other ranks have other experts' parameters in its place."""
        return self._rules[parameter].expert

    def per_head(self) -> list[str]:
        """Parameters whose gradients are parts of a sum over the ranks that share the layers."""
        return [name for name, rule in self._rules.items() if rule.per_head]

    def _rule(self, parameter: str, place: int) -> Rule:
        """As the rank at ``place`` among the experts has it."""
        name = EMBEDDING if parameter in self._copies else parameter
        return rule_of(name, self._head_size, place * self._experts)

    def _at(self, rule: Rule) -> int:
        """Place of this rank among those that share the rule's axis."""
        return self._mesh.place.expert_tensor if rule.expert else self._mesh.place.tensor

    def _first(self, rule: Rule) -> bool:
        """Of the ranks that have the same part this is the first."""
        place = self._mesh.place
        return place.expert_data == 0 if rule.expert else place.data == place.context == 0

    def _part(self, tensor: Tensor, rule: Rule) -> Tensor:
        layout, axis = self._mesh.layout, rule.axis
        size = layout.expert_tensor if rule.expert else layout.tensor
        if axis is None or size == 1:
            return tensor
        if rule.vocabulary:
            missing = layout.padded(self._vocabulary) - self._vocabulary
            tensor = torch.nn.functional.pad(tensor, (0, 0, 0, missing))
        length = tensor.shape[axis] // size
        return tensor.narrow(axis, length * self._at(rule), length)

    def _whole(self, part: Tensor, rule: Rule) -> Tensor:
        layout, axis = self._mesh.layout, rule.axis
        size = layout.expert_tensor if rule.expert else layout.tensor
        if axis is None or size == 1:
            return part
        group = self._mesh.expert_tensor_group if rule.expert else self._mesh.tensor_group
        whole = torch.cat(self._gathered(part, size, group), dim=axis)
        return whole[: self._vocabulary] if rule.vocabulary else whole

    def _of_all_experts(self, own: list[Tensor], rule: Rule) -> list[Sequence[Tensor]]:
        """Of every rank what it has in the place of ``own``, in the order of the experts."""
        size = self._mesh.layout.expert
        if not rule.expert or size == 1:
            return [own]
        group = self._mesh.expert_group
        return list(zip(*(self._gathered(each, size, group) for each in own), strict=True))

    def _gathered(self, part: Tensor, size: int, group: Any) -> list[Tensor]:
        parts = [torch.empty_like(part, memory_format=torch.contiguous_format) for _ in range(size)]
        with self._mesh.waiting():
            distributed.all_gather(parts, part.contiguous(), group=group)
        return parts

    @torch.no_grad()
    def load(self, source: Source, only: Collection[str] | None = None) -> list[str]:
        """Take every tensor that ``source`` has, of all parameters or of ``only``; the Hugging Face
        names of those it lacks.

        Raises ``RuntimeError`` for one of another shape.
        """
        missing: list[str] = []
        for name, parameter in self._parameters.items():
            if only is not None and name not in only:
                continue
            try:
                value = self.joined(name, source)
            except KeyError:
                missing.extend(self._rules[name].names)
                continue
            if value.shape != parameter.shape:
                raise RuntimeError(
                    f"{', '.join(self._rules[name].names)} make {tuple(value.shape)}, "
                    f"not {tuple(parameter.shape)}"
                )
            parameter.copy_(value)
        return missing


class FolderTensors:
    """The tensors of the safetensors files in a folder, read when they are asked for."""

    def __init__(self, folder: Path) -> None:
        """Raises ``EnvironmentProblem`` when there are no files."""
        self._open = ExitStack()
        self._parts: dict[str, list[tuple[int, int, Any]]] = defaultdict(list)
        """Name -> where each part starts, along which axis, and its file."""
        for path in sorted(folder.glob("*.safetensors")):
            file = self._open.enter_context(safe_open(path, framework="pt"))
            places = json.loads((file.metadata() or {}).get(_PLACES, "{}"))
            for name in file.keys():  # noqa: SIM118 - it is not a mapping
                axis, start = places.get(name, (0, 0))
                self._parts[name].append((start, axis, file))
        if not self._parts:
            raise EnvironmentProblem(
                f"{folder} has no safetensors files", fix="fetch the model again"
            )

    def __enter__(self) -> FolderTensors:
        return self

    def __exit__(self, *problem: object) -> None:
        self._open.close()

    @property
    def names(self) -> Collection[str]:
        """Of all tensors."""
        return self._parts.keys()

    def __call__(self, name: str) -> Tensor:
        """One tensor. Raises ``KeyError``, and ``ValueError`` when a part of it is missing."""
        if name not in self._parts:
            raise KeyError(name)
        parts = sorted(self._parts[name], key=lambda part: part[0])
        found: list[Tensor] = []
        end = 0
        for start, axis, file in parts:
            if start != end:
                raise ValueError(f"{name} lacks a part: {end} to {start}")
            found.append(file.get_tensor(name))
            end += found[-1].shape[axis] if found[-1].ndim else 0
        return found[0] if len(found) == 1 else torch.cat(found, dim=parts[0][1])


def write_parts(path: Path, parts: Iterable[Part], more: Mapping[str, Tensor]) -> None:
    """A file of ``parts`` and of whole tensors, which :class:`FolderTensors` puts together with
    those of other ranks."""
    tensors, places = dict(more), {}
    for part in parts:
        tensors[part.name] = part.tensor.detach().contiguous().cpu()
        places[part.name] = (part.axis, part.start)
    save_file(tensors, path, metadata={_PLACES: json.dumps(places)})
