"""Desk: where receivers ask and followers report; decides when a round begins and who is in it.

It lives in the event loop of :mod:`axisrl.ops.broadcast.leader`, whose thread it never blocks. It
holds no tensor.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from axisrl.ops.broadcast.channel import Message, hear, line
from axisrl.ops.broadcast.group import backend_for
from axisrl.ops.broadcast.roster import Request, Round, complete, whole

_LOGGER = logging.getLogger("axisrl.broadcast")
Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Offer(NamedTuple):
    """Weights that can be had."""

    number: int
    shares: Sequence[Mapping[str, Any]]
    """What each sender holds, as :meth:`axisrl.ops.broadcast.share.Share.about` says."""


class _Kept(NamedTuple):
    """The groups of the last round, where nobody saw a failure."""

    name: str
    members: tuple[Any, ...]
    """Of the groups, senders included, and what carries their buffers."""


class Desk:
    """``send`` is the leader's own part in a round; it runs in a thread and raises what failed."""

    def __init__(
        self, *, senders: int, store: str, timeout_s: float, send: Callable[[Round], None]
    ) -> None:
        self._senders = senders
        self._store = store
        self._timeout_s = timeout_s
        self._send = send
        self._followers: dict[int, Streams] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._waiting: dict[asyncio.StreamWriter, Request] = {}
        self._since = 0.0
        self._offer: Offer | None = None
        self._kept: _Kept | None = None
        self._quiet = asyncio.Lock()
        self._changed = asyncio.Event()
        self._numbers = count()

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: a follower, which stays, or a receiver with a request."""
        self._writers.add(writer)
        try:
            hello = await hear(reader)
            if "sender" in hello:
                self._followers[int(hello["sender"])] = reader, writer
                return
            self._take(Request(**hello), writer)
            await reader.read()
        except (ConnectionError, ValueError, TypeError) as problem:
            _LOGGER.debug("a connection ended: %s", problem)
        self._waiting.pop(writer, None)
        self._writers.discard(writer)
        writer.close()

    async def fill(self, number: int) -> list[Message]:
        """Have every follower copy its share for an offer; what each holds then. Raises
        ``ConnectionError`` naming those that cannot."""
        await self._followers_there()
        return await self._asked(range(1, self._senders), {"fill": number})

    async def place(self, offer: Offer) -> None:
        """Let receivers have it from here on."""
        async with self._quiet:
            self._offer = offer
            self._changed.set()

    async def withdraw(self) -> None:
        """Returns when no round runs any more; nothing is on offer then."""
        async with self._quiet:
            self._offer = None
            for writer, request in list(self._waiting.items()):
                self._refuse(writer, request)

    async def rounds(self) -> None:
        """Serve those who ask, for ever."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            wait = self._since + self._gather_s - asyncio.get_running_loop().time()
            if not complete(self._waiting.values()) and wait > 0:
                if self._waiting:
                    asyncio.get_running_loop().call_later(wait, self._changed.set)
                continue
            async with self._quiet:
                there = whole(self._waiting.values())
                if there and self._offer is not None:
                    await self._round(there, self._offer)

    def close(self) -> None:
        """Let everybody go."""
        for writer in self._writers:
            writer.close()

    @property
    def _gather_s(self) -> float:
        """How long a receiver that is there waits for others."""
        return min(5.0, self._timeout_s / 4)

    def _take(self, request: Request, writer: asyncio.StreamWriter) -> None:
        if self._offer is None or self._offer.number != request.offer:
            self._refuse(writer, request)
            return
        for other, earlier in list(self._waiting.items()):
            if earlier.member == request.member:  # it gave up, and its connection is not over yet
                del self._waiting[other]
        if not self._waiting:
            self._since = asyncio.get_running_loop().time()
        self._waiting[writer] = request
        self._changed.set()

    def _refuse(self, writer: asyncio.StreamWriter, request: Request) -> None:
        now = "nothing is" if self._offer is None else f"offer {self._offer.number} is"
        problem = f"offer {request.offer} is not held any more; {now} on offer now"
        writer.write(line({"problem": problem}))
        self._waiting.pop(writer, None)

    async def _round(self, there: Sequence[Request], offer: Offer) -> None:
        writers = {request: writer for writer, request in self._waiting.items()}
        sending = [n for n, share in enumerate(offer.shares) if share["buckets"]]
        devices = [offer.shares[n]["device"] for n in sending]
        backend = backend_for([*devices, *(request.device for request in there)])
        members = (*map(_member, there), *sending, backend)
        common = Round(
            group=self._name(there, members),
            rank=0,
            size=1 + len(there),
            backend=backend,
            store=self._store,
        )
        layouts = [share["buckets"] for share in offer.shares]
        for rank, request in enumerate(there, start=1):
            told = common._replace(rank=rank)._asdict()
            writers[request].write(line({"round": told, "shares": layouts}))
            del self._waiting[writers[request]]
        followers = [sender for sender in sending if sender]
        results = await asyncio.gather(
            asyncio.to_thread(self._send, common),
            self._asked(followers, {"round": common._asdict()}),
            return_exceptions=True,
        )
        problems = [each for each in results if isinstance(each, BaseException)]
        names = ", ".join(f"{receiver} rank {rank}" for receiver, rank in map(_member, there))
        if problems:
            self._kept = None
            _LOGGER.warning("offer %d did not reach all of %s: %s", offer.number, names, problems)
        else:
            self._kept = _Kept(common.group, members)
            _LOGGER.info("offer %d was sent by %s to %s", offer.number, common.backend, names)

    def _name(self, there: Sequence[Request], members: tuple[Any, ...]) -> str:
        """Of the groups that all still have, or of new ones."""
        kept, held = self._kept, {request.group for request in there}
        if kept is not None and held == {kept.name} and kept.members == members:
            return kept.name
        return f"{uuid.uuid4().hex[:8]}-{next(self._numbers)}"

    async def _followers_there(self) -> None:
        missing = set(range(1, self._senders))
        try:
            async with asyncio.timeout(self._timeout_s):
                while missing := set(range(1, self._senders)) - self._followers.keys():
                    await asyncio.sleep(0.01)
        except TimeoutError:
            listed = ", ".join(map(str, sorted(missing)))
            raise ConnectionError(f"sender {listed} of {self._senders} never came") from None

    async def _asked(self, followers: Sequence[int], what: Message) -> list[Message]:
        """Each follower's answer; a failure is raised once all have answered."""
        task = next(self._numbers)
        streams = [self._followers[sender] for sender in followers]
        for _, writer in streams:
            writer.write(line({**what, "task": task}))
        answers = await asyncio.gather(
            *(
                asyncio.wait_for(_answer(reader, task), 3 * self._timeout_s)
                for reader, _ in streams
            ),
            return_exceptions=True,
        )
        for sender, answer in zip(followers, answers, strict=True):
            if isinstance(answer, BaseException):
                raise ConnectionError(f"sender {sender} did not answer: {answer!r}") from answer
            if "problem" in answer:
                raise ConnectionError(answer["problem"])
        return [answer for answer in answers if not isinstance(answer, BaseException)]


async def _answer(reader: asyncio.StreamReader, task: int) -> Message:
    """A follower's answer, past those that came too late."""
    while (answer := await hear(reader))["task"] != task:
        pass
    return answer


def _member(request: Request) -> tuple[str, int]:
    return request.member
