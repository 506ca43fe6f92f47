"""A client of a service that lives in this process: what a test or a case gives a component that
calls one. It starts no process, and has one replica."""

from __future__ import annotations

import asyncio
from typing import Any

from axisrl.protocols import Service
from axisrl.runtime.calls import Call
from axisrl.runtime.services import answered


class LocalService:
    """An :class:`axisrl.protocols.ServiceClient`; the service is started at its first call."""

    def __init__(self, service: Service, name: str = "local") -> None:
        """``name`` is what errors call it."""
        self._service = service
        self._name = name
        self._starting = asyncio.Lock()
        self._started = False

    async def call(self, method: str, *args: Any, timeout_s: float = 60.0, **options: Any) -> Any:
        """As the protocol says; the service's own exceptions come as ``ServiceFailure``, too."""
        if not self._started:
            await self._start()
        call = Call(name=method, args=args, options=options, limit_s=timeout_s)
        return await answered(self._name, self._service, call)

    async def _start(self) -> None:
        async with self._starting:
            if not self._started:
                await self._service.start()
            self._started = True
