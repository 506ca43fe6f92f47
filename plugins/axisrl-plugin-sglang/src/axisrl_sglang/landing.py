"""Loads weights by a model's ``load_weights`` and finds out whether it serves what it was given.

1. Every copy into a parameter is noted: the slice written, and what was written there.
2. Afterwards each slice must hold the noted values, bit by bit where the types agree: a copy that
   went wrong, or that a later one overwrote, is found.
3. Every element of every parameter must have been written, and every tensor given must have been
   read: a name that the loader skips is found.
4. Where a tensor lands does not change: what was noted once is used again for tensors of the same
   names, types and shapes, as long as the parameters are where they were.

Padding that the loader fills counts as written. Copies made in other threads are not seen.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

_aten = torch.ops.aten
_FILLS = (_aten.fill_.Scalar, _aten.fill_.Tensor, _aten.zero_.default)
_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_LISTED = 3


class _Slice(NamedTuple):
    """A part of a tensor given, in elements from its start."""

    name: str
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int


class _Copy(NamedTuple):
    target: Tensor
    source: Tensor
    given: _Slice | None
    """What ``source`` is a part of; None for values the loader made."""


class _Route(NamedTuple):
    """Where tensors land, once it is known that they do."""

    key: tuple[Any, ...]
    pairs: tuple[tuple[Tensor, _Slice], ...]


_ROUTES: WeakKeyDictionary[Any, _Route] = WeakKeyDictionary()


def served(model: Any, given: Mapping[str, Tensor]) -> str:
    """Load ``given`` into the model; what is wrong with what it serves, empty when nothing is."""
    key = _key(model, given)
    route = _ROUTES.get(model)
    if route is not None and route.key == key:
        model.load_weights(iter(given.items()))
        pairs = [(target, _part(given[part.name], part)) for target, part in route.pairs]
        return _listing(model, "do not hold what was received:", _different(pairs))
    with _Landing(model, given) as landing:
        model.load_weights(iter(given.items()))
    problem: str = landing.problem()
    parts = [(copy.target, copy.given) for copy in landing.copies]
    if not problem and all(part is not None for _, part in parts):
        _ROUTES[model] = _Route(key, tuple((t, part) for t, part in parts if part is not None))
    return problem


def untied(model: Any) -> str:
    """What is wrong where a model's output matrix is its embedding (``tie_word_embeddings``) and
    SGLang's class of it keeps another, which nothing was loaded into; empty when nothing is."""
    if not getattr(model.config, "tie_word_embeddings", False):
        return ""
    held = dict(model.named_parameters())  # a shared one is there once
    output, embedding = held.get("lm_head.weight"), held.get("model.embed_tokens.weight")
    if output is None or embedding is None or torch.equal(output, embedding):
        return ""
    return (
        f"SGLang's {type(model).__name__} keeps an output matrix apart from the embedding, and the "
        "model has one matrix for both (tie_word_embeddings): it would answer by weights that were "
        "never loaded"
    )


class _Landing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes, while it is entered, what is copied into the model's parameters."""

    def __init__(self, model: Any, given: Mapping[str, Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._model = model
        self._parameters: dict[str, Tensor] = {
            name: value for name, value in model.named_parameters() if not _is_made(value)
        }
        self._owners = {_memory(value): name for name, value in self._parameters.items()}
        self._given = sorted(
            (tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes, name)
            for name, tensor in given.items()
            if tensor.numel()
        )
        self._written: dict[str, dict[tuple[Any, ...], int]] = {}
        self._read: set[str] = set()
        self.copies: list[_Copy] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if func is _aten.copy_.default:
            self._note_copy(args[0].detach(), args[1].detach())
        elif func in _FILLS:
            self._note_written(args[0])
        return result

    def problem(self) -> str:
        """What is wrong with what is served; empty when nothing is."""
        unread = {name for _, _, name in self._given} - self._read
        found = [
            _listing(self._model, "did not reach the model:", unread),
            _listing(self._model, "were not (wholly) given:", self._unwritten()),
            _listing(
                self._model,
                "do not hold what was received:",
                _different([(copy.target, copy.source) for copy in self.copies]),
            ),
        ]
        return "; ".join(filter(None, found))

    def _note_copy(self, target: Tensor, source: Tensor) -> None:
        part = self._part_of(source)
        if part is not None:
            self._read.add(part.name)
        if self._note_written(target):
            self.copies.append(_Copy(target, source, part))

    def _note_written(self, target: Tensor) -> bool:
        name = self._owners.get(_memory(target))
        if name is None:
            return False
        where = (target.storage_offset(), tuple(target.shape), target.stride())
        self._written.setdefault(name, {})[where] = target.numel()
        return True

    def _part_of(self, source: Tensor) -> _Slice | None:
        place = source.data_ptr()
        at = bisect_right(self._given, place, key=lambda given: given[0]) - 1
        if at < 0 or place >= self._given[at][1]:
            return None
        offset = (place - self._given[at][0]) // source.element_size()
        return _Slice(self._given[at][2], tuple(source.shape), source.stride(), offset)

    def _unwritten(self) -> Iterable[str]:
        for name, value in self._parameters.items():
            if sum(self._written.get(name, {}).values()) < value.numel():
                yield name


def _key(model: Any, given: Mapping[str, Tensor]) -> tuple[Any, ...]:
    """Two loads with equal keys put everything in the same places."""
    tensors = tuple((name, t.dtype, t.shape, t.stride()) for name, t in given.items())
    return tensors, tuple(parameter.data_ptr() for parameter in model.parameters())


def _part(tensor: Tensor, part: _Slice) -> Tensor:
    return tensor.as_strided(part.shape, part.stride, tensor.storage_offset() + part.offset)


def _is_made(parameter: Tensor) -> bool:
    """SGLang's own mark of parameters that are in no checkpoint."""
    return bool(getattr(parameter, "_skip_weight_check", False))


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _different(pairs: list[tuple[Tensor, Tensor]]) -> list[int]:
    """Memory of the targets that do not hold their sources."""
    if not pairs:
        return []
    same = torch.stack([_same(*pair) for pair in pairs]).tolist()
    return [_memory(pair[0]) for pair, holds in zip(pairs, same, strict=True) if not holds]


def _same(target: Tensor, source: Tensor) -> Tensor:
    """Whether ``target`` holds ``source``, as a bool on its device. NaN equals itself."""
    if source.dtype != target.dtype or source.device != target.device:
        source = source.to(target)
    word = _WORDS[target.element_size()]
    return (target.view(word) == source.view(word)).all()


def _listing(model: Any, what: str, found: Iterable[str | int]) -> str:
    """A line on parameters, by name or by memory; empty when there are none."""
    names = {_memory(value): name for name, value in model.named_parameters()}
    listed = sorted({names[each] if isinstance(each, int) else each for each in found})
    if not listed:
        return ""
    more = f" and {len(listed) - _LISTED} more" if len(listed) > _LISTED else ""
    return f"{what} {', '.join(listed[:_LISTED])}{more}"
