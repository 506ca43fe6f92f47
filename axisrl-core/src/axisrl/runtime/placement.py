"""Placement: where actors live. ``inline`` in this process, ``ray`` one process each; same
classes, same results.

Ray is imported only by :class:`RayPlacement`. Nothing here knows what an actor does.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol

from axisrl.config.schema import PlacementConfig
from axisrl.errors import EnvironmentProblem, RunFailed
from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot, ActorHandle


class Placement(Protocol):
    """Starts actors and ends them all."""

    async def spawn(
        self, actor: type[Actor], boot: ActorBoot, *peers: ActorHandle, gpus: float = 0.0
    ) -> ActorHandle:
        """Build ``actor(boot, store, *peers)`` somewhere; its constructor's exception is raised
        here."""
        ...

    async def close(self) -> None:
        """End every actor (their ``stop`` was called before) and what was started to host them."""
        ...


class InlineHandle:
    """An actor in this process. Its plain methods run in one thread of its own, so the loop stays
    free."""

    def __init__(self, actor: Actor) -> None:
        self._actor = actor
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix=actor.boot.role)

    async def call(self, method: str, *args: Any) -> Any:
        """Run a coroutine method on the loop, a plain one in the actor's thread."""
        bound = getattr(self._actor, method)
        if inspect.iscoroutinefunction(bound):
            return await bound(*args)
        return await asyncio.get_running_loop().run_in_executor(self._thread, bound, *args)

    def close(self) -> None:
        """End the actor's thread."""
        self._thread.shutdown(wait=True)


class InlinePlacement:
    """Everything in this process: what a debugger and a test want."""

    def __init__(self, store: HandleStore) -> None:
        self._store = store
        self._handles: list[InlineHandle] = []

    async def spawn(
        self, actor: type[Actor], boot: ActorBoot, *peers: ActorHandle, gpus: float = 0.0
    ) -> ActorHandle:
        """Build the actor off the loop (it may load a model)."""
        built = await asyncio.to_thread(actor, boot, self._store, *peers)
        self._handles.append(InlineHandle(built))
        return self._handles[-1]

    async def close(self) -> None:
        """End the actors' threads."""
        for handle in self._handles:
            handle.close()
        self._handles.clear()


class RayHandle:
    """A Ray actor; picklable, so actors can hold handles of each other."""

    def __init__(self, actor: Any, name: str) -> None:
        self._actor = actor
        self._name = name

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method in the actor's process."""
        return await _unwrapped(getattr(self._actor, method).remote(*args), self._name)


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
        self._config = config
        self._actors: list[Any] = []
        self._owns_cluster = not ray.is_initialized()
        if self._owns_cluster:
            try:
                ray.init(
                    address=config.address or None,
                    include_dashboard=False,
                    log_to_driver=False,
                    logging_level="ERROR",
                )
            except (ConnectionError, RuntimeError, ValueError) as problem:
                raise EnvironmentProblem(
                    f"Ray did not start: {problem}", fix="check placement.address and `ray status`"
                ) from problem

    async def spawn(
        self, actor: type[Actor], boot: ActorBoot, *peers: ActorHandle, gpus: float = 0.0
    ) -> ActorHandle:
        """Start a process; waits until the constructor is through."""
        options: dict[str, Any] = {"num_cpus": self._config.cpus_per_actor, "num_gpus": gpus}
        if any(inspect.iscoroutinefunction(member) for member in vars(actor).values()):
            options["max_concurrency"] = 10_000  # the engine and the worker pool bound concurrency
        remote = self._ray.remote(actor).options(**options).remote(boot, None, *peers)
        self._actors.append(remote)
        name = f"{boot.role} {boot.rank}"
        await _unwrapped(remote.__ray_ready__.remote(), name)
        return RayHandle(remote, name)

    async def close(self) -> None:
        """Kill the actors, and the cluster when this run started it."""
        for remote in self._actors:
            self._ray.kill(remote)
        self._actors.clear()
        if self._owns_cluster:
            self._ray.shutdown()


async def _unwrapped(reference: Awaitable[Any], name: str) -> Any:
    """Await a Ray call; raise the actor's own exception instead of Ray's wrapper of it."""
    from ray.exceptions import ActorDiedError, RayActorError, RayTaskError

    try:
        return await reference
    except RayTaskError as error:
        raise (error.cause if isinstance(error.cause, Exception) else error) from None
    except ActorDiedError as error:
        raise _birth_error(error) or RunFailed(
            f"the {name} actor died: {error}", fix="see the Ray logs of that process"
        ) from None
    except RayActorError as error:
        raise RunFailed(f"the {name} actor cannot be reached: {error}") from None


def _birth_error(error: Exception) -> Exception | None:
    """The exception of an actor's constructor, which Ray hides in the cause."""
    cause = getattr(error, "cause", None) or error.__cause__
    inner = getattr(cause, "cause", cause)
    return inner if isinstance(inner, Exception) else None


def make_placement(config: PlacementConfig, store: HandleStore) -> Placement:
    """The placement a config asks for."""
    return RayPlacement(config) if config.kind == "ray" else InlinePlacement(store)
