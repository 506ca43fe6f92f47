"""Service: what several components of a run share and call by name, such as a retrieval index or a
reward model; and the client they call it with."""

from __future__ import annotations

from typing import Any, Protocol


class Service(Protocol):
    """Built once a replica, in a process of its own (``placement: ray``).

    Its other public coroutine methods are what clients call, many at once. Arguments and results
    cross processes: plain data and arrays, no live objects. A call over its deadline is cancelled.
    A replica that dies is built and started again, and its calls are made once more: a call must
    not leave behind what the next one counts on. Slow work that does not await belongs in a thread
    (``asyncio.to_thread``): it keeps other calls waiting, and a blocked replica is replaced.
    """

    async def start(self) -> None:
        """Load what calls need; awaited before the first of them."""
        ...

    async def stop(self) -> None:
        """Free it. Idempotent; also called when ``start`` failed."""
        ...


class ServiceClient(Protocol):
    """What a component finds in ``context.services[name]``; to be used after its constructor."""

    async def call(self, method: str, *args: Any, timeout_s: float = 60.0, **options: Any) -> Any:
        """``await service.method(*args, **options)`` in one of its replicas, within ``timeout_s``
        (the time that a replica needs to come back is not counted).

        Raises ``ServiceFailure`` that names service, method and reason: it raised, it has no such
        method, it took longer than ``timeout_s``, its processes died over it. Not caught it is the
        caller's failure: an env's is ``env_error``, a verifier's or reward's ``verifier_error``.
        """
        ...
