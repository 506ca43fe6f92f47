"""``core/ray``: arrays in Ray's object store, readable from every node of the cluster.

1. One holder actor a node puts the arrays of that node's workers with ``ray.put`` and keeps the
   references. The holder owns them, so they outlive the worker, stay on its node, and travel only
   to who reads them; dropping the reference is what frees them.
2. One named directory actor makes the holders and is their owner. The driver makes the directory.
   Ray ends actors with their owner, so a killed run leaves nothing behind in a shared cluster.
3. A handle's key starts with the node it is on; after one look-up a process talks to holders only.

Only Ray's public API is used. It does not start Ray, and a lost node loses its arrays: reading one
is then a ``StoreError`` that names the handle.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any

import ray

from axisrl.builtin import handles as shared
from axisrl.builtin.memory_handles import Ledger
from axisrl.config.base import NoConfig
from axisrl.errors import EnvironmentProblem, StoreError, StoreLost
from axisrl.types import BuildContext, Handle, Payload, StoreStats

_ID = "core/ray"
_NAMESPACE = "axisrl"


class RayHandleStore:
    """See the module's docstring. Expiry is judged by the holders, with the driver's clock."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        self._clock = context.clock
        self._name = f"store-{shared.run_key(context.run_dir)}"
        self._directory: Any = None
        self._holders: dict[str, Any] = {}
        self._closed = False

    async def put(self, payload: Payload, *, owner: str, ttl_s: float | None = None) -> Handle:
        """See :meth:`axisrl.protocols.HandleStore.put`."""
        if self._closed:
            raise shared.closed(_ID)
        array = shared.prepared(payload)
        self._connect()
        node = ray.get_runtime_context().get_node_id()
        key = f"{node}-{uuid.uuid4().hex}"
        handle = await shared.off_loop(array.nbytes, shared.handle_for, _ID, key, array, owner)
        try:
            holder = await self._holder(node)
            await holder.put.remote(key, array, owner, ttl_s)
        except ray.exceptions.RayActorError as problem:
            raise StoreLost(f"{_ID} is gone on node {node}: {_first(problem)}") from problem
        except ray.exceptions.RayError as problem:
            raise StoreError(
                f"{_ID} cannot keep {array.nbytes} bytes on node {node}: {_first(problem)}",
                fix="give Ray a larger object store, or run fewer rollouts at once",
            ) from problem
        return handle

    async def get(self, handle: Handle) -> Payload:
        """See :meth:`axisrl.protocols.HandleStore.get`."""
        shared.require_store(handle, _ID)
        if self._closed:
            raise shared.gone(handle, "the store is closed")
        try:
            holder = await self._holder(_node_of(handle))
            found = await holder.get.remote(handle.key)
            if not found:
                raise shared.gone(handle)
            whole = await found[0]
        except ray.exceptions.RayError as problem:
            raise shared.gone(handle, f"Ray lost it ({_first(problem)})") from problem
        return await shared.off_loop(whole.nbytes, shared.read, handle, whole)

    async def release(self, handles: Sequence[Handle]) -> int:
        """See :meth:`axisrl.protocols.HandleStore.release`. A lost node's count as not there."""
        by_node: dict[str, list[str]] = {}
        for handle in handles:
            shared.require_store(handle, _ID)
            by_node.setdefault(_node_of(handle), []).append(handle.key)
        if self._closed:
            return 0
        released = 0
        for node, keys in by_node.items():
            try:
                holder = await self._holder(node)
                released += int(await holder.release.remote(keys))
            except ray.exceptions.RayError:
                self._holders.pop(node, None)
        return released

    async def release_owner(self, owner: str) -> int:
        """See :meth:`axisrl.protocols.HandleStore.release_owner`."""
        return sum(await self._everywhere("release_owner", owner))

    async def stats(self) -> StoreStats:
        """Over all nodes."""
        parts = await self._everywhere("stats")
        return StoreStats(
            items=sum(items for items, _ in parts), bytes=sum(size for _, size in parts)
        )

    async def close(self) -> None:
        """See :meth:`axisrl.protocols.HandleStore.close`."""
        if self._closed:
            return
        self._closed = True
        if self._directory is not None and ray.is_initialized():
            # The holders die with the directory, and the arrays with the holders.
            ray.kill(self._directory)
        self._holders.clear()

    def _connect(self) -> None:
        """Find the run's directory, or make it; at first use, since a run may start Ray after its
        store."""
        if self._directory is not None:
            return
        if not ray.is_initialized():
            raise EnvironmentProblem(
                f"{_ID} needs a running Ray, and this process is not connected to one",
                fix="use `placement: ray`, or `store: core/shm` within one machine",
            )
        actor = ray.remote(_Directory).options(
            name=self._name, namespace=_NAMESPACE, get_if_exists=True, num_cpus=0
        )
        self._directory = actor.remote(self._clock)

    async def _holder(self, node: str) -> Any:
        self._connect()
        if node not in self._holders:
            self._holders[node] = await self._directory.holder.remote(node)
        return self._holders[node]

    async def _everywhere(self, method: str, *args: Any) -> list[Any]:
        """What every holder that still lives answers."""
        if self._closed:
            return []
        self._connect()
        answers = []
        try:
            holders = await self._directory.holders.remote()
        except ray.exceptions.RayActorError as problem:
            raise StoreLost(f"{_ID} is gone: {_first(problem)}") from problem
        for holder in holders:
            try:
                answers.append(await getattr(holder, method).remote(*args))
            except ray.exceptions.RayError:
                # Its node is gone, and with it everything it held.
                continue
        return answers


class _Directory:
    """Makes and knows the holders. Runs as a named actor."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._holders: dict[str, Any] = {}

    def holder(self, node: str) -> Any:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        if node not in self._holders:
            strategy = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
            self._holders[node] = (
                ray.remote(_Holder)
                .options(num_cpus=0, max_restarts=-1, scheduling_strategy=strategy)
                .remote(self._clock)
            )
        return self._holders[node]

    def holders(self) -> list[Any]:
        return list(self._holders.values())


class _Holder:
    """Keeps the references of one node's arrays. Runs as an actor."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._ledger = Ledger(clock)

    def put(self, key: str, array: Payload, owner: str, ttl_s: float | None) -> None:
        # In a list, because a bare reference given to a call is resolved to its value.
        kept = [ray.put(array)]
        self._ledger.add(key, kept, owner=owner, size=array.nbytes, ttl_s=ttl_s)

    def get(self, key: str) -> list[Any]:
        return self._ledger.get(key) or []

    def release(self, keys: Sequence[str]) -> int:
        return self._ledger.drop(keys)

    def release_owner(self, owner: str) -> int:
        return self._ledger.drop_owner(owner)

    def stats(self) -> tuple[int, int]:
        return self._ledger.stats()


def _node_of(handle: Handle) -> str:
    return handle.key.partition("-")[0]


def _first(problem: BaseException) -> str:
    return f"{type(problem).__name__}: {str(problem).strip().splitlines()[0]}"
