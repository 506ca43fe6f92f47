"""Leader: the first sender. It listens for receivers and followers and holds an offer until the
next one.

Its thread and its connections live from construction to :meth:`Leader.close`. Weights are copied in
:meth:`Leader.offer`; sending them does not read the trainer's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from itertools import count
from typing import Any, TypeVar
from urllib.parse import urlencode

from axisrl.errors import WeightSyncError
from axisrl.ops.broadcast.channel import LONGEST, Message
from axisrl.ops.broadcast.desk import Desk, Offer
from axisrl.ops.broadcast.group import open_store
from axisrl.ops.broadcast.roster import Round
from axisrl.ops.broadcast.share import Fill, Share

T = TypeVar("T")
_CLOSE_S = 5.0


class Leader:
    """Rank 0 of ``senders``."""

    def __init__(self, host: str, *, senders: int, timeout_s: float) -> None:
        """``host``: this machine, as the others reach it. ``timeout_s``: longest wait for another
        process, and for a buffer to arrive."""
        self._timeout_s = timeout_s
        self._senders = senders
        self._share = Share(0, timeout_s)
        self._numbers = count(1)
        self._store, store = open_store(host, timeout_s)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="axisrl-broadcast", daemon=True
        )
        self._thread.start()
        self.address = f"{host}:{self._call(self._open(store))}"
        """``host:port``."""

    def offer(self, fill: Fill) -> str:
        """Copy every sender's share of the weights, and offer them; where they can be had. What was
        on offer before no longer is.

        Raises ``WeightSyncError`` when a follower cannot.
        """
        number = next(self._numbers)
        self.withdraw()
        filling = asyncio.run_coroutine_threadsafe(self._desk.fill(number), self._loop)
        try:
            self._share.take(fill)
        finally:
            others = self._filled(filling)
        self._call(self._desk.place(Offer(number, [self._share.about(), *others])))
        return f"tcp://{self.address}/{number}?{urlencode({'timeout_s': self._timeout_s})}"

    def withdraw(self) -> None:
        """Free what is on offer here; a round that runs is over first."""
        self._call(self._desk.withdraw())
        self._share.free()

    def close(self) -> None:
        """Leave; idempotent."""
        if self._loop.is_closed():
            return
        self._call(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._share.free()
        self._share.leave()

    def _filled(self, filling: Future[list[Message]]) -> list[Message]:
        try:
            return filling.result()
        except ConnectionError as problem:
            raise WeightSyncError(
                f"the weights cannot be offered by {self._senders} senders: {problem}",
                fix="see why that rank of the trainer ended or hangs; raise "
                "trainer.transfer_timeout_s for large models",
            ) from problem

    async def _open(self, store: str) -> int:
        self._desk = Desk(
            senders=self._senders, store=store, timeout_s=self._timeout_s, send=self._send
        )
        self._server = await asyncio.start_server(self._desk.answer, "0.0.0.0", 0, limit=LONGEST)
        self._rounds = asyncio.ensure_future(self._desk.rounds())
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def _shut(self) -> None:
        self._rounds.cancel()
        self._server.close()
        self._desk.close()
        mine = asyncio.current_task()
        if others := [task for task in asyncio.all_tasks() if task is not mine]:
            await asyncio.wait(others, timeout=_CLOSE_S)

    def _send(self, round_: Round) -> None:
        self._share.send(round_, self._store)

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
