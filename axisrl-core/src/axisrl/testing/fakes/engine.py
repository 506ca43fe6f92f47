"""A rollout engine that answers from a script. It loads no model and samples nothing.

1. The prompt is decoded with :class:`CharTokenizer`, the script names the reply, the reply is cut
   by ``max_tokens``, stop strings and stop tokens as a real engine would cut it.
2. Every token has log-probability ``-log(vocabulary)``: the uniform policy, at any temperature.
   :class:`ScriptedTrainer` says the same.
3. Time passes only through ``sleep`` (:class:`FakeClock` has one), failures only on request.
"""

from __future__ import annotations

import asyncio
import dataclasses
import math
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from axisrl.config.base import Config
from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.protocols import EnginePart, Keep
from axisrl.testing.fakes.tokenizer import CharTokenizer
from axisrl.testing.fakes.weights import weights_checksum
from axisrl.types import (
    BuildContext,
    FinishReason,
    FloatArray,
    GenerateRequest,
    GenerateResult,
    IntArray,
    ModelSpec,
    Payload,
    WeightAck,
    WeightUpdate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What the engine does with one request."""

    text: str = ""
    """Said, then the end-of-turn token."""
    ids: tuple[int, ...] | None = None
    """Exactly these tokens instead of ``text`` and end-of-turn."""
    latency_s: float = 0.0
    """Passed to the engine's ``sleep`` before the first token."""
    hang_after: int | None = None
    """Emit so many tokens and wait to be aborted."""
    error: str = ""
    """Raise ``EngineFailure`` with this message."""


Script = Callable[[str, GenerateRequest], Reply | str]


@dataclass(frozen=True, kw_only=True, slots=True)
class ScriptedEngineConfig(Config):
    """Options of :class:`ScriptedEngine`."""

    replies: dict[str, str] = field(default_factory=dict)
    """Text found in the prompt -> reply; the first that is found wins."""
    default: str = "ok"
    """Reply to every other prompt."""
    latency_s: float = 0.0
    """Of replies that name none."""
    max_context: int = 4096
    """Prompt and reply together."""
    bad_ack: Literal["", "version", "checksum", "never"] = ""
    """How the answer to a weight update is wrong, if it is."""


def scripted_experts(ids: IntArray) -> Payload:
    """Experts of a path's tokens, uint8 (tokens, 3 layers, 2): each depends on all before it."""
    running = np.cumsum(np.asarray(ids, np.int64) * np.arange(1, len(ids) + 1))
    chosen: Payload = running[:, None, None] * np.asarray([[1, 3], [5, 7], [11, 13]]) % 251
    return chosen.astype(np.uint8)


class ScriptedEngine:
    """A :class:`axisrl.protocols.ScoringEngine`, :class:`axisrl.protocols.OffloadingEngine` and
    :class:`axisrl.protocols.RoutingEngine`. ``script`` overrides the config's replies."""

    def __init__(
        self,
        config: ScriptedEngineConfig | None = None,
        context: BuildContext | None = None,
        *,
        script: Script | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.config = config or ScriptedEngineConfig()
        self.tokenizer = CharTokenizer()
        self.requests: list[GenerateRequest] = []
        """Every request, in order of arrival."""
        self.scored: list[tuple[IntArray, float]] = []
        """Ids and temperature of every ``score``."""
        self.updates: list[WeightUpdate] = []
        self.version = 0
        self.peak = 0
        """Most requests that ran at once."""
        self.away: set[EnginePart] = set()
        """What ``offload`` took and ``reload`` did not bring back."""
        self._script = script or self._from_config
        self._sleep = sleep
        self._running: dict[str, tuple[str, asyncio.Event]] = {}
        self._keep: Keep | None = None
        self._held: dict[str, tuple[str, asyncio.Event]] = {}
        self._paused = False
        self._open = asyncio.Event()
        self._open.set()

    async def start(self, model: ModelSpec) -> None:
        """Nothing is loaded."""
        self.version = 0

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Answer from the script. Raises ``EngineFailure`` where the script or the prompt's length
        says so."""
        self.requests.append(request)
        room = self.config.max_context - len(request.prompt_ids)
        if room < 1:
            raise EngineFailure(
                f"request {request.id}: {len(request.prompt_ids)} prompt tokens leave no room in "
                f"{self.config.max_context}",
                fix="raise max_context or shorten the prompt",
            )
        aborted = asyncio.Event()
        if not (self._open.is_set() or await self._hold(request, aborted)):
            return self._result([], "abort")
        if request.id in self._running:
            raise EngineFailure(f"request id {request.id!r} is already running")
        self._running[request.id] = (request.session, aborted)
        self.peak = max(self.peak, len(self._running))
        try:
            result = await self._answer(request, room, aborted)
            return await self._with_routing(request, result)
        finally:
            del self._running[request.id]

    def capture_routing(self, keep: Keep) -> None:
        """Tell experts (:func:`scripted_experts`), and give them to ``keep``."""
        self._keep = keep

    async def score(self, ids: IntArray, temperature: float) -> FloatArray:
        """The uniform policy's. Raises ``EngineFailure`` for ids longer than the context."""
        self.scored.append((ids, temperature))
        if not 0 < len(ids) <= self.config.max_context:
            raise EngineFailure(
                f"{len(ids)} tokens cannot be scored in {self.config.max_context}",
                fix="raise max_context or shorten the text",
            )
        uniform = -math.log(self.tokenizer.vocab_size)
        return np.full(len(ids) - 1, uniform, np.float32)

    async def abort(self, session: str | None = None) -> int:
        """End the running requests of a session, or all. Returns once they are over."""
        hit = {
            request: gone
            for request, (name, gone) in (self._held | self._running).items()
            if session in (None, name)
        }
        for gone in hit.values():
            gone.set()
        while hit.keys() & (self._held | self._running).keys():
            await asyncio.sleep(0)
        return len(hit)

    async def update_weights(self, update: WeightUpdate) -> WeightAck:
        """Read the array that :class:`ScriptedTrainer` wrote and echo; refuses while requests
        run."""
        if self._running:
            raise WeightSyncError(
                f"version {update.version} offered while {len(self._running)} requests run",
                fix="pause and abort, or wait, first",
            )
        if "weights" in self.away:
            raise WeightSyncError("the weights are away", fix="reload them first")
        if self.config.bad_ack == "never":
            await asyncio.Event().wait()
        checksum = weights_checksum(np.load(Path(update.location), allow_pickle=False))
        self.updates.append(update)
        self.version = update.version
        return WeightAck(
            version=update.version - (self.config.bad_ack == "version"),
            checksum="0" if self.config.bad_ack == "checksum" else checksum,
        )

    async def pause(self) -> None:
        """Hold new requests."""
        self._paused = True
        self._open.clear()

    async def resume(self) -> None:
        """Let them start."""
        self._paused = False
        self._let_in()

    async def offload(self, parts: Collection[EnginePart]) -> None:
        """Hold new requests; refuses while requests run."""
        if self._running:
            raise EngineFailure(f"{len(self._running)} requests run", fix="abort them first")
        self.away.update(parts)
        self._open.clear()

    async def reload(self, parts: Collection[EnginePart]) -> None:
        """Let them start, once everything is back."""
        self.away.difference_update(parts)
        self._let_in()

    def _let_in(self) -> None:
        if not self._paused and not self.away:
            self._open.set()

    async def stop(self) -> None:
        """Abort what runs."""
        await self.abort()

    def _from_config(self, prompt: str, request: GenerateRequest) -> str:
        found = (reply for text, reply in self.config.replies.items() if text in prompt)
        return next(found, self.config.default)

    async def _answer(
        self, request: GenerateRequest, room: int, aborted: asyncio.Event
    ) -> GenerateResult:
        own = request.prompt_ids[: len(request.prompt_ids) - request.sampled_before]
        said = self._script(self.tokenizer.decode(own.tolist(), skip_special=False), request)
        reply = Reply(text=said, latency_s=self.config.latency_s) if isinstance(said, str) else said
        if not await self._wait(self._sleep(reply.latency_s), aborted):
            return self._result([], "abort")
        if reply.error:
            raise EngineFailure(reply.error)
        whole = list(reply.ids) if reply.ids is not None else self._turn(reply.text)
        ids, reason = self._cut(whole, request, room + request.sampled_before)
        ids = ids[request.sampled_before :]
        if reply.hang_after is not None:
            await aborted.wait()
            return self._result(ids[: reply.hang_after], "abort")
        return self._result(ids, reason)

    async def _with_routing(
        self, request: GenerateRequest, result: GenerateResult
    ) -> GenerateResult:
        start = request.routing_from
        if self._keep is None or start is None or not len(result.ids):
            return result
        path = np.concatenate([request.prompt_ids, result.ids])
        told = await self._keep(scripted_experts(path)[start:-1])
        return dataclasses.replace(result, routing=(told,))

    async def _hold(self, request: GenerateRequest, aborted: asyncio.Event) -> bool:
        """Wait until requests may start; False when it was aborted before."""
        self._held[request.id] = (request.session, aborted)
        try:
            return await self._wait(self._open.wait(), aborted)
        finally:
            del self._held[request.id]

    async def _wait(self, latency: Awaitable[Any], aborted: asyncio.Event) -> bool:
        """False when the request was aborted before the latency was over."""
        tasks = [asyncio.ensure_future(latency), asyncio.ensure_future(aborted.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return not aborted.is_set()

    def _turn(self, text: str) -> list[int]:
        return [*self.tokenizer.encode(text), *self.tokenizer.stop_ids]

    def _cut(
        self, ids: list[int], request: GenerateRequest, room: int
    ) -> tuple[list[int], FinishReason]:
        sampling = request.sampling
        ends = {*self.tokenizer.stop_ids, *sampling.stop_token_ids}
        limit = min(room, sampling.max_tokens)
        for at, token in enumerate(ids[:limit], start=1):
            text = self.tokenizer.decode(ids[:at])
            if token in ends or any(stop in text for stop in sampling.stop):
                return ids[:at], "stop"
        return ids[:limit], "length"

    def _result(self, ids: list[int], reason: FinishReason) -> GenerateResult:
        return GenerateResult(
            ids=np.asarray(ids, np.int32),
            logprobs=np.full(len(ids), -math.log(self.tokenizer.vocab_size), np.float32),
            versions=np.full(len(ids), self.version, np.int32),
            finish_reason=reason,
        )
