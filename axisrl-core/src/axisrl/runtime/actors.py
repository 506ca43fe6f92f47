"""Actors: the plain classes a run is made of, and the handles through which they call each other.

1. An actor is built from an :class:`ActorBoot`, which is small and picklable: everything heavy is
   rebuilt in place.
2. It restores the driver's plugins first, so a worker with other versions fails in its
   constructor, with the reason.
3. It hands its process's own environment to components as the service ``environ``: options named
   ``*_env`` name entries of it, so no secret is in a config or crosses processes.
4. A handle's ``call`` is the only way in. The same classes run inline and as Ray actors
   (:mod:`axisrl.runtime.placement`).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from axisrl.config.schema import RunConfig, Use
from axisrl.errors import ConfigError
from axisrl.plugins import ComponentRef, Kind
from axisrl.plugins.events import WorkerInfo
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.manifest import PluginManifest
from axisrl.protocols import HandleStore
from axisrl.types import BuildContext, Handle, ModelSpec, Payload


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorBoot:
    """What crosses the process border to make an actor."""

    role: str
    """Resource group: rollout, engine, trainer, value, reference, teacher, recorder."""
    rank: int
    manifest: PluginManifest
    config: RunConfig
    run_dir: Path
    model: ModelSpec
    models: Mapping[str, ModelSpec] = field(default_factory=dict)
    """Role -> its model, where it is not the policy's: ``value``, ``teacher``."""


class ActorHandle(Protocol):
    """A reference to an actor, wherever it lives; picklable when the actor is remote."""

    @property
    def pid(self) -> int:
        """Id of the process it lives in, on its machine."""
        ...

    async def call(self, method: str, *args: Any) -> Any:
        """Run a method there. Its exception is raised here as itself; a dead actor is
        ``ActorGone``."""
        ...

    def kill(self) -> None:
        """End the actor at once, where it has a process of its own."""
        ...


class Services(dict[str, Any]):
    """What components find in ``BuildContext.services``; one that is missing is told by name."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        super().__init__(values)
        self.late: dict[str, Callable[[], Any]] = {}
        """Gives one that is made when it is first asked for: not every component needs it."""

    def __contains__(self, name: object) -> bool:
        """True for a late one, too, before it is made."""
        return super().__contains__(name) or name in self.late

    def get(self, name: str, default: Any = None) -> Any:
        """As of any mapping, of the late ones too."""
        return self[name] if name in self else default  # noqa: SIM401 - it is that method

    def __missing__(self, name: str) -> Any:
        if name in self.late:
            return self.setdefault(name, self.late[name]())
        raise ConfigError(
            f"a component needs the service {name!r}, and the run has none of that name",
            fix=f"add services.{name} to the configuration",
        )


class Actor:
    """Base of all actors: plugins restored, components buildable, the store at hand."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        """``store`` is shared by actors of one process; None builds this process's own."""
        self.boot = boot
        self.plugins = PluginManager.restore(boot.manifest)
        self.services = Services({"model": boot.model, "environ": os.environ})
        self.store: HandleStore = store or self.build("store", boot.config.store, "store")
        self.services["store"] = self.store

    def build(self, kind: Kind, use: Use, path: str) -> Any:
        """A component from its place in the config; errors name ``path``."""
        return build_component(self.plugins, self.boot, self.services, (kind, use, path))

    def factory(self, kind: Kind, use: Use, path: str) -> Callable[[], Any]:
        """What builds a component again and again; its options are checked now."""
        return component_factory(self.plugins, self.boot, self.services, (kind, use, path))

    async def put(
        self, values: Payload, ttl_s: float | None = None, owner: str | None = None
    ) -> Handle:
        """Keep an array in the store, in this actor's name or ``owner``'s, for ``ttl_s`` or until
        released."""
        owner = owner or f"{self.boot.role}-{self.boot.rank}"
        return await self.store.put(values, owner=owner, ttl_s=ttl_s)

    async def put_bytes(self, blob: bytes, owner: str | None = None) -> Handle:
        """Keep bytes in the store, as uint8."""
        return await self.put(np.frombuffer(blob, np.uint8), owner=owner)

    async def ping(self) -> bool:
        """True, from an actor whose loop is not blocked."""
        return True

    async def stay(self) -> None:
        """Never returns: whoever waits for it hears at once when the process ends."""
        await asyncio.Event().wait()

    def started(self) -> None:
        """Tell the plugins; the last line of every actor's constructor."""
        self.plugins.worker_started(
            WorkerInfo(
                role=self.boot.role,
                rank=self.boot.rank,
                host=socket.gethostname(),
                pid=os.getpid(),
            )
        )


def build_component(
    plugins: PluginManager,
    boot: ActorBoot,
    services: dict[str, Any],
    what: tuple[Kind, Use, str],
) -> Any:
    """Build ``what`` = (kind, use, config path) for a run."""
    return component_factory(plugins, boot, services, what)()


def component_factory(
    plugins: PluginManager,
    boot: ActorBoot,
    services: dict[str, Any],
    what: tuple[Kind, Use, str],
) -> Callable[[], Any]:
    """What builds ``what`` for a run, as often as it is called; its options are checked now."""
    kind, use, path = what
    ref = ComponentRef(kind=kind, use=use.use, options=dict(use.options))
    make = plugins.factory(kind, ref, path)
    return lambda: make(
        BuildContext(run_dir=boot.run_dir, seed=boot.config.seed, services=services)
    )
