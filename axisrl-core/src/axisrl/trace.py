"""Trace: the only truth about tokens. An append-only tree of token runs.

1. A node is a run of token ids of one ``kind`` with a parent. A model call names the node that was
   the end of its context and adds one ``sampled`` child. A plain conversation is a chain; edited
   context is a branch.
2. Every sampled token exists once, so :meth:`Trace.rows` trains it once however many branches
   contain it.
3. A trace validates itself on append and never changes what it holds. Text is never re-tokenised
   into it.
4. :meth:`to_bytes` is safetensors (JSON header, plain arrays); nothing is unpickled.

It does not know about chat templates (:mod:`axisrl.runtime.chat`) or rewards
(:mod:`axisrl.runtime.batch`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from axisrl.types import (
    BoolArray,
    FinishReason,
    FloatArray,
    GenerateResult,
    IntArray,
    SamplingParams,
)

NodeKind = Literal["prompt", "sampled", "observation", "template"]
_KINDS = ("prompt", "sampled", "observation", "template")


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A run of tokens. The last five fields belong to ``sampled`` nodes alone."""

    id: int
    parent: int | None
    kind: NodeKind
    ids: IntArray
    logprobs: FloatArray | None = None
    versions: IntArray | None = None
    finish_reason: FinishReason | None = None
    sampling: SamplingParams | None = None
    seed: int | None = None
    routing: int = 0
    """Tokens whose experts were told with it: those before the last token of its path."""


class Row(NamedTuple):
    """One root-to-leaf path as arrays of equal length (tokens,)."""

    ids: IntArray
    trained: BoolArray
    """True for sampled tokens whose first row this is."""
    logprobs: FloatArray
    """0 where not sampled."""
    versions: IntArray
    """-1 where not sampled."""
    temperature: FloatArray
    """1 where not sampled."""
    nodes: IntArray
    """Id of each token's node: ids grow in the order of sampling, over all rows."""
    experts_at: IntArray
    """Place of each token among all whose experts were told, node after node; -1 where they were
    not."""


class Trace:
    """The token tree of one rollout."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __getitem__(self, node_id: int) -> Node:
        if not 0 <= node_id < len(self._nodes):
            raise ValueError(f"the trace has no node {node_id}; it has {len(self._nodes)}")
        return self._nodes[node_id]

    def append(self, kind: NodeKind, ids: ArrayLike, *, parent: int | None) -> int:
        """Add a run of tokens that was not sampled and return its id. Empty runs are refused."""
        if kind == "sampled":
            raise ValueError(
                "sampled nodes come from append_sampled, which takes their logprobs and versions"
            )
        return self._add(Node(id=len(self), parent=parent, kind=kind, ids=_frozen(ids, np.int32)))

    def append_sampled(
        self, result: GenerateResult, *, parent: int, sampling: SamplingParams, seed: int
    ) -> int:
        """Add what one model call produced after the path that ends in ``parent`` and return the
        node's id."""
        return self._add(
            Node(
                id=len(self),
                parent=parent,
                kind="sampled",
                ids=_frozen(result.ids, np.int32),
                logprobs=_frozen(result.logprobs, np.float32),
                versions=_frozen(result.versions, np.int32),
                finish_reason=result.finish_reason,
                sampling=sampling,
                seed=seed,
                routing=sum(handle.shape[0] for handle in result.routing),
            )
        )

    def path(self, node_id: int) -> list[Node]:
        """The nodes from a root down to ``node_id``, in token order."""
        nodes = []
        current: int | None = node_id
        while current is not None:
            node = self[current]
            nodes.append(node)
            current = node.parent
        return nodes[::-1]

    def ids(self, node_id: int) -> IntArray:
        """All token ids of the path that ends in ``node_id``: int32[tokens]."""
        return np.concatenate([node.ids for node in self.path(node_id)])

    def routed(self, node_id: int) -> int:
        """How many tokens at the beginning of the path that ends in ``node_id`` have experts."""
        end, known = 0, 0
        for node in self.path(node_id):
            end += len(node.ids)
            known = end - 1 if node.routing else known
        return known

    def leaves(self) -> list[int]:
        """Ids of the nodes without children, in order of creation."""
        parents = {node.parent for node in self._nodes}
        return [node.id for node in self._nodes if node.id not in parents]

    def rows(self) -> list[Row]:
        """One row for each leaf whose path still has an untrained sampled token; each such token
        in exactly one row."""
        rows, seen = [], set[int]()
        for leaf in self.leaves():
            path = self.path(leaf)
            fresh = [node.kind == "sampled" and node.id not in seen for node in path]
            if any(fresh):
                rows.append(_row(path, fresh, self._experts_at(path)))
                seen.update(node.id for node, new in zip(path, fresh, strict=True) if new)
        return rows

    @property
    def sampled_tokens(self) -> int:
        """How many tokens the policy sampled, over all branches."""
        return sum(len(node.ids) for node in self._nodes if node.kind == "sampled")

    def to_bytes(self) -> bytes:
        """The whole trace as safetensors bytes."""
        from safetensors.numpy import save

        sampled = [
            node for node in self._nodes if node.logprobs is not None and node.versions is not None
        ]
        tensors = {
            "ids": _concat([node.ids for node in self._nodes], np.int32),
            "logprobs": _concat([node.logprobs for node in sampled], np.float32),
            "versions": _concat([node.versions for node in sampled], np.int32),
        }
        header = json.dumps([_header(node) for node in self._nodes])
        return bytes(save(tensors, metadata={"format": "axisrl-trace-1", "nodes": header}))

    @classmethod
    def from_bytes(cls, blob: bytes) -> Trace:
        """Inverse of :meth:`to_bytes`. Raises ``ValueError`` when the bytes are not a trace."""
        from safetensors import SafetensorError
        from safetensors.numpy import load

        nodes = _read_nodes(blob)
        try:
            arrays = load(blob)
        except SafetensorError as problem:
            raise ValueError(f"these bytes are not an axisrl trace: {problem}") from problem
        trace, at, at_sampled = cls(), 0, 0
        for entry in nodes:
            size = entry.pop("size")
            node = Node(
                id=len(trace), ids=_frozen(arrays["ids"][at : at + size], np.int32), **_typed(entry)
            )
            at += size
            if node.kind == "sampled":
                window = slice(at_sampled, at_sampled + size)
                node = dataclasses.replace(
                    node,
                    logprobs=_frozen(arrays["logprobs"][window], np.float32),
                    versions=_frozen(arrays["versions"][window], np.int32),
                )
                at_sampled += size
            trace._add(node)
        return trace

    def _experts_at(self, path: Sequence[Node]) -> IntArray:
        starts = np.cumsum([0, *(node.routing for node in self._nodes)])
        places = np.full(sum(len(node.ids) for node in path), -1, np.int32)
        end = 0
        for node in path:
            end += len(node.ids)
            if node.routing:
                told = np.arange(starts[node.id], starts[node.id + 1], dtype=np.int32)
                places[end - 1 - node.routing : end - 1] = told
        return places

    def _add(self, node: Node) -> int:
        if node.kind not in _KINDS:
            raise ValueError(f"unknown node kind {node.kind!r}; kinds are {', '.join(_KINDS)}")
        if node.ids.ndim != 1 or len(node.ids) == 0:
            raise ValueError(
                f"a {node.kind} node needs one or more token ids, got shape {node.ids.shape}"
            )
        if int(node.ids.min()) < 0:
            raise ValueError(f"a {node.kind} node holds a negative token id")
        if node.parent is not None and not 0 <= node.parent < len(self):
            raise ValueError(f"parent {node.parent} is not in the trace of {len(self)} nodes")
        if node.kind == "sampled":
            self._check_sampled(node)
        self._nodes.append(node)
        return node.id

    @staticmethod
    def _check_sampled(node: Node) -> None:
        if node.parent is None:
            raise ValueError("a sampled node needs a parent: the context it was sampled from")
        for name, array in (("logprobs", node.logprobs), ("versions", node.versions)):
            if array is None or array.shape != node.ids.shape:
                got = None if array is None else array.shape
                raise ValueError(
                    f"{name} must have the shape of the ids {node.ids.shape}, got {got}"
                )
        if node.logprobs is not None and not np.all(np.isfinite(node.logprobs)):
            raise ValueError("a sampled token has a logprob that is not finite")


def _row(path: Sequence[Node], fresh: Sequence[bool], experts_at: IntArray) -> Row:
    ids = np.concatenate([node.ids for node in path])
    trained = np.zeros(len(ids), np.bool_)
    logprobs = np.zeros(len(ids), np.float32)
    versions = np.full(len(ids), -1, np.int32)
    temperature = np.ones(len(ids), np.float32)
    nodes = np.repeat([node.id for node in path], [len(node.ids) for node in path])
    at = 0
    for node, new in zip(path, fresh, strict=True):
        window = slice(at, at + len(node.ids))
        at += len(node.ids)
        if node.logprobs is None or node.versions is None or node.sampling is None:
            continue
        trained[window] = new
        logprobs[window] = node.logprobs
        versions[window] = node.versions
        temperature[window] = node.sampling.temperature
    nodes = nodes.astype(np.int32)
    return Row(ids, trained, logprobs, versions, temperature, nodes, experts_at)


def _frozen(values: Any, dtype: Any) -> Any:
    array = np.array(values, dtype=dtype)
    array.setflags(write=False)
    return array


def _concat(arrays: Sequence[Any], dtype: Any) -> Any:
    return np.concatenate(arrays) if arrays else np.zeros(0, dtype)


def _header(node: Node) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": node.kind, "parent": node.parent, "size": len(node.ids)}
    if node.kind == "sampled":
        entry |= {"finish_reason": node.finish_reason, "seed": node.seed}
        entry["sampling"] = _sampling(node.sampling) if node.sampling else None
        entry["routing"] = node.routing
    return entry


def _sampling(sampling: SamplingParams) -> dict[str, Any]:
    return {each.name: getattr(sampling, each.name) for each in dataclasses.fields(sampling)}


def _typed(entry: dict[str, Any]) -> dict[str, Any]:
    if sampling := entry.get("sampling"):
        tuples = {
            "stop": tuple(sampling["stop"]),
            "stop_token_ids": tuple(sampling["stop_token_ids"]),
        }
        entry["sampling"] = SamplingParams(**(sampling | tuples))
    if "routing" in entry:  # null where a trace was written before experts were counted
        entry["routing"] = entry["routing"] or 0
    return entry


def _read_nodes(blob: bytes) -> list[dict[str, Any]]:
    size = int.from_bytes(blob[:8], "little")
    try:
        metadata = json.loads(blob[8 : 8 + size])["__metadata__"]
        if metadata["format"] != "axisrl-trace-1":
            raise ValueError(f"format {metadata['format']!r}")
        nodes = json.loads(metadata["nodes"])
    except (KeyError, ValueError, TypeError) as problem:
        raise ValueError(f"these bytes are not an axisrl trace: {problem}") from problem
    return list(nodes)
