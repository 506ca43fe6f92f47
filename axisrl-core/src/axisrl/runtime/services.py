"""Named services: a component in a process of its own that the run's other components call by
name.

:class:`ServiceActor` holds one replica, :class:`RoutedService` is what components call it with.
What a service does, and which replica answers, is not known here.
"""

from __future__ import annotations

import inspect
from typing import Any

from axisrl.config.problems import nearest
from axisrl.errors import AxisrlError, ServiceFailure
from axisrl.protocols import HandleStore, Service
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.boundaries import in_time
from axisrl.runtime.calls import Answers, Call, answered_by

_PREFIX = "service-"
_LIFE = ("start", "stop")


def group_of(name: str) -> str:
    """Resource group, and role of the actors, of the service ``name``."""
    return f"{_PREFIX}{name}"


class ServiceActor(Actor):
    """One replica of the service that its role names."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        self._name = boot.role.removeprefix(_PREFIX)
        use = boot.config.services[self._name]
        self._service: Service = self.build("service", use, f"services.{self._name}")
        self.started()

    async def start(self) -> None:
        """Load what calls need. Raises ``ServiceFailure`` naming the service."""
        try:
            await self._service.start()
        except AxisrlError:
            raise
        except Exception as error:  # foreign code: whatever keeps it from starting ends the run
            raise ServiceFailure(
                f"service {self._name} did not start: {type(error).__name__}: {error}"
            ) from error

    async def answer(self, call: Call) -> Any:
        """Raises ``ServiceFailure`` for whatever the service raises."""
        return await answered(self._name, self._service, call)

    async def stop(self) -> None:
        """Free it."""
        await self._service.stop()


class RoutedService:
    """An :class:`axisrl.protocols.ServiceClient` of replicas elsewhere."""

    def __init__(self, name: str, replicas: Answers) -> None:
        self._name = name
        self._replicas = replicas

    async def call(self, method: str, *args: Any, timeout_s: float = 60.0, **options: Any) -> Any:
        """As the protocol says."""
        call = Call(name=method, args=args, options=options, limit_s=timeout_s)
        return await answered_by(self._replicas, _called(self._name, method), call, ServiceFailure)


async def answered(name: str, service: Service, call: Call) -> Any:
    """What ``service``, known as ``name``, answers. Raises ``ServiceFailure`` for anything
    else."""
    what = _called(name, call.name)
    method = _method(name, service, call.name)
    late = ServiceFailure(f"{what} gave no answer within {call.limit_s:g} s")
    try:
        return await in_time(method(*call.args, **call.options), call.limit_s, late)
    except ServiceFailure:
        raise
    except Exception as error:  # foreign code: the caller is told whatever it raised
        raise ServiceFailure(f"{what}: {type(error).__name__}: {error}") from error


def _called(name: str, method: str) -> str:
    return f"service {name}, {method}"


def _method(name: str, service: Service, wanted: str) -> Any:
    there = [
        each
        for each, _ in inspect.getmembers(type(service), inspect.iscoroutinefunction)
        if not each.startswith("_") and each not in _LIFE
    ]
    if wanted in there:
        return getattr(service, wanted)
    near = nearest(wanted, there)
    hint = f"; did you mean {near}?" if near else ""
    listed = ", ".join(there) or "none"
    raise ServiceFailure(f"service {name} has no method {wanted!r}, it has {listed}{hint}")
