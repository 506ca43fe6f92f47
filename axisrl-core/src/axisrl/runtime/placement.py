"""Placement: where actors live. ``inline`` in this process, ``ray`` one process each; same
classes, same results.

1. What a run will start is set aside first, by resource group: a run that does not fit ends before
   a model is loaded, and one that does keeps its places.
2. Ray is imported only by :class:`RayPlacement`. Nothing here knows what an actor does.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ActorGone, EnvironmentProblem
from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle
from axisrl.runtime.garbage import settle
from axisrl.runtime.places import RayPlaces, ResourceGroup


class Placement(Protocol):
    """Starts actors and ends them all."""

    actors: dict[str, ActorHandle]
    """Role and rank, as in ``engine 0`` -> the newest actor that was started for them."""

    async def reserve(self, groups: Mapping[str, ResourceGroup]) -> None:
        """Set aside a place for every actor of these groups, before any is started.

        Raises ``ConfigError`` that names the group, what it needs and what there is.
        """
        ...

    async def spawn(
        self, actor: type[Actor], boot: ActorBoot, *args: Any, group: str = ""
    ) -> ActorHandle:
        """Build ``actor(boot, store, *args)`` in a place of ``group``, or anywhere; its
        constructor's exception is raised here."""
        ...

    async def close(self) -> None:
        """End every actor (their ``stop`` was called before) and what was started to host them."""
        ...


class ActorHost:
    """Holds one actor. Its plain methods run in a thread of their own, so the loop stays free.

    Inline it is the handle itself; with Ray it is the remote object. An exception of the actor's
    constructor comes out of :meth:`build` as itself, in both.
    """

    def __init__(self) -> None:
        self._actor: Actor
        self._thread = ThreadPoolExecutor(max_workers=1)

    @property
    def pid(self) -> int:
        """This process."""
        return os.getpid()

    async def build(self, actor: Callable[..., Actor], *args: Any) -> None:
        """Construct ``actor(*args)`` in its thread (it may load a model)."""
        self._actor = await self._in_thread(actor, *args)

    async def call(self, method: str, *args: Any) -> Any:
        """Run a coroutine method on the loop, a plain one in the actor's thread."""
        bound = getattr(self._actor, method)
        if inspect.iscoroutinefunction(bound):
            return await bound(*args)
        return await self._in_thread(bound, *args)

    def kill(self) -> None:
        """An actor in this process cannot be ended alone."""

    def close(self) -> None:
        """End the actor's thread."""
        self._thread.shutdown(wait=True)

    async def _in_thread(self, function: Callable[..., Any], *args: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._thread, function, *args)


class RayHost(ActorHost):
    """The remote object."""

    async def build(self, actor: Callable[..., Actor], *args: Any) -> None:
        """Construct ``actor(*args)``; the process is its alone."""
        await super().build(actor, *args)
        settle()

    def where(self) -> tuple[int, str]:
        """Its process and node."""
        import ray

        return self.pid, ray.get_runtime_context().get_node_id()


class InlinePlacement:
    """Everything in this process: what a debugger and a test want."""

    def __init__(self, store: HandleStore) -> None:
        self._store = store
        self._hosts: list[ActorHost] = []
        self.actors: dict[str, ActorHandle] = {}

    async def reserve(self, groups: Mapping[str, ResourceGroup]) -> None:
        """Everything fits into the one process there is."""

    async def spawn(
        self, actor: type[Actor], boot: ActorBoot, *args: Any, group: str = ""
    ) -> ActorHandle:
        """Build the actor in a thread of its own."""
        host = ActorHost()
        self._hosts.append(host)
        await host.build(actor, boot, self._store, *args)
        self.actors[_name(boot)] = host
        return host

    async def close(self) -> None:
        """End the actors' threads."""
        for host in self._hosts:
            host.close()
        self._hosts.clear()


class RayHandle:
    """An :class:`ActorHost` in another process; picklable, so actors can hold handles of each
    other."""

    def __init__(self, host: Any, name: str, where: tuple[int, str]) -> None:
        """``where``: its process, and the node that runs it."""
        self._host = host
        self._name = name
        self.pid, self._node = where

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method in the actor's process."""
        return await _unwrapped(self._host.call.remote(method, *args), self._name)

    def kill(self) -> None:
        """End the process at once."""
        import ray

        ray.kill(self._host)
        # Ray asks the process itself to exit, and one that is stopped hears nothing.
        if self._node == ray.get_runtime_context().get_node_id() and _is_host(self.pid):
            os.kill(self.pid, signal.SIGKILL)


class RayPlacement:
    """One Ray actor each, on the cluster at ``config.address`` or a local one started for this
    run."""

    def __init__(self, config: PlacementConfig) -> None:
        try:
            import ray
        except ImportError as missing:
            raise EnvironmentProblem(
                "placement ray needs Ray", fix="pip install 'axisrl-core[ray]'"
            ) from missing
        self._ray = ray
        self._places = RayPlaces(config)
        self._hosts: list[Any] = []
        self.actors: dict[str, ActorHandle] = {}
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            try:
                ray.init(
                    address=config.address or "local",  # None would join a cluster it finds
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                )
            except (ConnectionError, RuntimeError, ValueError) as problem:
                raise EnvironmentProblem(
                    f"Ray did not start: {problem}",
                    fix="check placement.address and `ray status`; set RAY_AUTH_MODE=token for a "
                    "cluster that asks for one, as Ray 2.60's do where ~/.ray/auth_token exists",
                ) from problem

    async def reserve(self, groups: Mapping[str, ResourceGroup]) -> None:
        """A placement group each, or one for all that share bundles."""
        await self._places.reserve(groups)

    async def spawn(
        self, actor: type[Actor], boot: ActorBoot, *args: Any, group: str = ""
    ) -> ActorHandle:
        """Start a process and build the actor in it."""
        hosts = self._ray.remote(RayHost).options(
            **self._places.options(group, _name(boot)),
            max_concurrency=10_000,  # the engine and the rollout slots bound what really runs
        )
        host, name = hosts.remote(), _name(boot)
        self._hosts.append(host)
        try:
            await _unwrapped(host.build.remote(actor, boot, None, *args), name)
            where = await _unwrapped(host.where.remote(), name)
        except BaseException:
            self._ray.kill(host)  # it may still wait for a place that the next one needs
            raise
        self.actors[name] = RayHandle(host, name, where)
        return self.actors[name]

    async def close(self) -> None:
        """Kill the actors, give their places back, and end the cluster if this run started it."""
        for host in self._hosts:
            self._ray.kill(host)
        self._hosts.clear()
        self._places.close()
        if self._owns_cluster:
            self._ray.shutdown()


def _is_host(pid: int) -> bool:
    """Whether that process still is one that Ray runs, and not a later one of the same number."""
    try:
        return b"ray::" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def _name(boot: ActorBoot) -> str:
    return f"{boot.role} {boot.rank}"


async def _unwrapped(reference: Awaitable[Any], name: str) -> Any:
    """Await a Ray call; raise the actor's own exception instead of Ray's wrapper of it."""
    from ray.exceptions import RayActorError, RayTaskError

    try:
        return await reference
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except RayActorError as error:
        why = str(error).strip().partition("\n")[0]
        raise ActorGone(
            f"the {name} actor is gone: {why}", fix="see that process's log in Ray's session"
        ) from None


def make_placement(config: PlacementConfig, store: HandleStore) -> Placement:
    """The placement a config asks for."""
    return RayPlacement(config) if config.kind == "ray" else InlinePlacement(store)
