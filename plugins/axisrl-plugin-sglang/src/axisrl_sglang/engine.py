"""``sglang/engine``: SGLang in a process of its own; token ids in, ids and log-probabilities out.

1. ``generate`` translates a request, sends it to the SGLang process (:mod:`axisrl_sglang.process`)
   and waits. Batching, caching and sampling are SGLang's.
2. A token's logprob is under the distribution it was drawn from, masks applied; a greedy token's
   (temperature 0) is of the softmax at temperature 1.
3. With ``seeded`` the random number of a token depends on the request's seed and the token's place
   in prompt and answer, so a resumed request draws what the whole one would have drawn. SGLang
   cannot combine seeds with min-p: such requests are refused.
   With speculative decoding there are no seeds; a token's logprob is the model's, not the draft's.
4. Stop strings are looked for here, in the tokens as they come: SGLang runs without a tokenizer.
5. Requests wait here while the engine is paused, while it takes new weights and while memory is
   handed over (SGLang's memory saver: ``hand_over``).
6. When the SGLang process is gone, every call raises ``ActorGone``, and so does ``stay``.
7. As a part of an engine on several machines (:mod:`axisrl_sglang.launch`) it answers requests on
   the first of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import uuid
from collections.abc import Collection
from dataclasses import dataclass
from itertools import count
from typing import ClassVar, cast

import numpy as np

from axisrl.errors import ActorGone, EngineFailure, EnvironmentProblem, WeightSyncError
from axisrl.protocols import EnginePart, Keep
from axisrl.runtime.chat import ChatTokenizer, load_tokenizer
from axisrl.types import (
    BuildContext,
    FinishReason,
    GenerateRequest,
    GenerateResult,
    ModelSpec,
    WeightAck,
    WeightUpdate,
)
from axisrl_sglang.adapters import described_adapter
from axisrl_sglang.arguments import check_arguments, package_folder, server_arguments
from axisrl_sglang.blocks import check_blocks
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.launch import Part, check_part, server_values
from axisrl_sglang.messages import NOTHING_SENT, About, Adapter, Ask, Experts, Output, Weights
from axisrl_sglang.process import HostProcess
from axisrl_sglang.requests import check_request, is_certain, is_masked, sampling_parameters
from axisrl_sglang.routing import check_capturing, experts_of, fitted
from axisrl_sglang.streaming import until_string
from axisrl_sglang.updates import described, require_served
from axisrl_sglang.versions import outside


@dataclass(eq=False, slots=True)
class _Live:
    """A request that is not over."""

    session: str
    rid: str
    over: asyncio.Future[FinishReason]
    aborted: asyncio.Event
    sent: bool = False
    """It is SGLang's; before, it waits here."""


@dataclass(frozen=True, slots=True)
class _Served:
    """What a start leaves behind."""

    process: HostProcess
    about: About
    tokenizer: ChatTokenizer
    experts: Experts | None
    """Where routing is told."""


class SglangEngine:
    """A :class:`axisrl.protocols.OffloadingEngine`, :class:`axisrl.protocols.WatchedEngine` and
    :class:`axisrl.protocols.SpanningEngine`. All methods belong to one event loop."""

    host_module: ClassVar[str] = "axisrl_sglang.host"
    """What the SGLang process runs."""

    def __init__(self, config: EngineConfig, context: BuildContext) -> None:
        self._folder = package_folder()
        self._known = server_arguments(self._folder)
        check_arguments(config.sglang, self._known)
        self._keep: Keep | None = None
        self._part = Part()
        self._config = config
        self._context = context
        self._served: _Served | None = None
        self._live: set[_Live] = set()
        self._open = asyncio.Event()
        self._shut: set[str] = set()
        self._away: set[EnginePart] = set()
        self._broken = ""
        self._version = 0
        self._numbers = count()

    def capture_routing(self, keep: Keep) -> None:
        """See :meth:`axisrl.protocols.RoutingEngine.capture_routing`."""
        check_capturing(self._config.sglang, self._known, self._folder)
        self._keep = keep

    def join(self, part: int, parts: int, address: str) -> None:
        """See :meth:`axisrl.protocols.SpanningEngine.join`."""
        self._part = Part(part, parts, address)
        check_part(self._part, self._config)

    async def start(self, model: ModelSpec) -> None:
        """Load the model as version 0; a second start replaces the model."""
        await self.stop()
        if model.head != "lm":
            raise EnvironmentProblem(
                "SGLang serves language models, not value heads", fix="serve model.head lm"
            )
        experts = experts_of(model) if self._keep else None
        if self._config.fp8:
            check_blocks(model, self._ranks, self._config.fp8_skip)
        log = self._context.run_dir / "logs" / f"sglang-{uuid.uuid4().hex[:8]}.log"
        process = HostProcess(log, self.host_module, self._part.variables)
        arguments = server_values(
            self._config,
            model,
            seed=self._context.seed,
            routing=self._keep is not None,
            part=self._part,
        )
        try:
            async with asyncio.timeout(self._config.start_timeout_s):
                about: About = await process.call("start", arguments)
                if not self._part.number:
                    await self._look_at(model, process)
        except (TimeoutError, EngineFailure) as problem:
            await process.stop(0)
            told = str(problem) or "engine.start_timeout_s is over"
            raise EnvironmentProblem(
                "; ".join(filter(None, (f"SGLang did not start: {told}", outside()))),
                fix=f"see {process.log}",
            ) from problem
        except BaseException:
            await process.stop(0)
            raise
        process.watch(self._config.answer_timeout_s)
        tokenizer = self._context.services.get("tokenizer") or load_tokenizer(model.path)
        self._served = _Served(process, about, tokenizer, experts)
        self._version, self._broken = 0, ""
        self._away.clear()
        self._shut.clear()
        self._open.set()

    async def _look_at(self, model: ModelSpec, process: HostProcess) -> None:
        """Whether SGLang can serve the model it loaded. It loads plain weights into FP8 as they
        are: give it the model's once more."""
        given = [Weights(0, NOTHING_SENT, "", "", False)]
        if self._config.fp8 and self._config.sglang.get("load_format") != "dummy":
            given.append(Weights(0, "disk", str(model.path), "", self._config.verify_weights))
        for weights in given:
            for report in await process.call("update", weights):
                if report.problem:
                    raise EngineFailure(f"the weights of {model.name}: {report.problem}")

    @property
    def _ranks(self) -> int:
        return int(self._config.sglang.get("tp_size", 1))

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """See :meth:`axisrl.protocols.RolloutEngine.generate`. Cancelling it ends the request."""
        served = self._running()
        self._check(request, served)
        if request.sampled_before >= request.sampling.max_tokens:
            return self._result(Output([], [], "length", 0))
        loop = asyncio.get_running_loop()
        rid = f"{next(self._numbers):012d}-{uuid.uuid4().hex[:8]}"
        live = _Live(request.session, rid, loop.create_future(), asyncio.Event())
        self._live.add(live)
        finish: FinishReason = "abort"
        try:
            if await self._let_in(live):
                live.sent = True
                result = await self._answer(request, self._ask(request, rid, served), served)
            else:
                result = self._result(Output([], [], "abort", 0))
            finish = result.finish_reason
            return result
        except asyncio.CancelledError:
            if live.sent:  # nobody waits for its tokens, but an update waits for SGLang to be idle
                with contextlib.suppress(ActorGone):
                    await served.process.call("abort", rid)
            raise
        finally:
            self._live.discard(live)
            live.over.set_result(finish)

    async def abort(self, session: str | None = None) -> int:
        """See :meth:`axisrl.protocols.RolloutEngine.abort`. Returns once they are over."""
        chosen = [live for live in self._live if session in (None, live.session)]
        for live in chosen:
            live.aborted.set()
        if sent := [live.rid for live in chosen if live.sent]:
            process = self._running().process
            await asyncio.gather(*(process.call("abort", rid) for rid in sent))
        if chosen:  # not gathered: cancelling an abort would cancel what it waits for
            await asyncio.wait([live.over for live in chosen])
        return sum(live.over.result() == "abort" for live in chosen)

    async def update_weights(self, update: WeightUpdate) -> WeightAck:
        """See :meth:`axisrl.protocols.RolloutEngine.update_weights`."""
        served = self._running()
        hindrance = self._hindrance()
        if "weights" in self._away:
            hindrance = "its weights are handed over"
        if hindrance:
            raise WeightSyncError(
                f"sglang/engine cannot take weights {update.version} over {self._version} now: "
                f"{hindrance}",
                fix="pause and abort requests, or wait until they are over; reload weights first",
            )
        method, weights = self._described(update, served)
        self._close("update")
        try:
            reports = await served.process.call(method, weights)
        except EngineFailure as refused:
            raise WeightSyncError(
                f"weight update {update.version}: {refused.message}",
                fix=f"see {served.process.log}",
            ) from refused
        finally:
            self._reopen("update")
        if any(each.changed for each in reports) or len({not each.problem for each in reports}) > 1:
            self._broken = f"weight update {update.version} went wrong half-way"
        require_served(update, reports)
        self._version, self._broken = update.version, ""
        return WeightAck(version=update.version, checksum=reports[0].checksum)

    def _described(self, update: WeightUpdate, served: _Served) -> tuple[str, Weights | Adapter]:
        """The method that takes it, and what the SGLang process must know."""
        config = self._config
        if config.lora is not None:
            return "adapt", described_adapter(update, config.lora)
        return "update", described(
            update,
            verify=config.verify_weights,
            ranks=self._ranks,
            receiver=served.process.log.stem,
        )

    async def pause(self) -> None:
        """Start no new request until :meth:`resume`."""
        self._close("pause")

    async def resume(self) -> None:
        """Undo :meth:`pause`."""
        self._reopen("pause")

    async def offload(self, parts: Collection[EnginePart]) -> None:
        """See :meth:`axisrl.protocols.OffloadingEngine.offload`."""
        process = self._handing_over()
        if hindrance := self._hindrance():
            raise EngineFailure(
                f"sglang/engine cannot hand its memory over now: {hindrance}",
                fix="pause and abort requests, or wait until they are over",
            )
        if going := sorted(set(parts) - self._away):
            self._close("memory")
            self._away.update(going)
            await process.call("release", going)

    async def reload(self, parts: Collection[EnginePart]) -> None:
        """See :meth:`axisrl.protocols.OffloadingEngine.reload`."""
        process = self._handing_over()
        if coming := sorted(set(parts) & self._away):
            await process.call("regain", coming)
            self._away.difference_update(coming)
        if not self._away:
            self._reopen("memory")

    async def stay(self) -> None:
        """See :meth:`axisrl.protocols.WatchedEngine.stay`."""
        await self._running().process.stay()

    async def stop(self) -> None:
        """End SGLang. Requests that are not over raise ``ActorGone``."""
        if self._served is not None:
            served, self._served = self._served, None
            self._open.set()  # requests that wait here find that the process is gone
            await served.process.stop(self._config.stop_timeout_s)

    def _handing_over(self) -> HostProcess:
        if not self._config.hand_over:
            raise EnvironmentProblem(
                "sglang/engine was started without SGLang's memory saver",
                fix="set engine.hand_over to true",
            )
        return self._running().process

    def _hindrance(self) -> str:
        """Why nothing but requests can be attended to now; empty when it can."""
        if "update" in self._shut:
            return "it is taking others"
        sent = sum(live.sent for live in self._live)
        return f"{sent} requests run" if sent else ""

    def _close(self, why: str) -> None:
        self._shut.add(why)
        self._open.clear()

    def _reopen(self, why: str) -> None:
        self._shut.discard(why)
        if not self._shut:
            self._open.set()

    def _running(self) -> _Served:
        if self._served is None:
            raise EngineFailure("the engine is not started", fix="await engine.start(model) first")
        return self._served

    def _check(self, request: GenerateRequest, served: _Served) -> None:
        if self._broken:
            raise EngineFailure(f"the weights served are not whole: {self._broken}")
        if request.routing_from is not None and self._keep is None:
            raise EngineFailure(
                f"request {request.id!r} is refused: the engine was not started to tell experts",
                fix="set rollout.routing to true",
            )
        check_request(request, context=served.about.context, vocabulary=served.about.vocabulary)
        if self._config.seeded and request.sampling.min_p > 0:
            raise EngineFailure(
                f"request {request.id!r} is refused: SGLang has no seeds with min_p",
                fix="leave rollout.sampling.min_p at 0, or set engine.seeded to false",
            )
        if is_masked(request.sampling) and "sampling_mask" not in served.about.features:
            raise EngineFailure(
                f"request {request.id!r} is refused: SGLang {served.about.version} does not tell "
                "log-probabilities under top_k, top_p and min_p, or not with speculative decoding",
                fix="sample from the whole vocabulary, or install a newer SGLang and leave out "
                "sglang.speculative_algorithm",
            )

    async def _let_in(self, live: _Live) -> bool:
        """Wait until the engine is open; False when the request is aborted meanwhile."""
        while not self._open.is_set() and not live.aborted.is_set():
            waits = [asyncio.ensure_future(e.wait()) for e in (self._open, live.aborted)]
            try:
                await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for wait in waits:
                    wait.cancel()
        return not live.aborted.is_set()

    def _ask(self, request: GenerateRequest, rid: str, served: _Served) -> Ask:
        sampling = request.sampling
        room = served.about.context - len(request.prompt_ids)
        parameters = sampling_parameters(sampling, vocabulary=served.about.vocabulary)
        parameters["max_new_tokens"] = min(sampling.max_tokens - request.sampled_before, room)
        parameters["stop_token_ids"] = sorted(
            served.tokenizer.stop_ids | frozenset(sampling.stop_token_ids)
        )
        if self._config.seeded:
            parameters["sampling_seed"] = request.seed % 2**63
        ids, masked = request.prompt_ids.tolist(), is_masked(sampling)
        return Ask(rid, ids, parameters, masked, request.routing_from, served.experts)

    async def _answer(self, request: GenerateRequest, ask: Ask, served: _Served) -> GenerateResult:
        if request.sampling.stop:
            output = await until_string(served.process, served.tokenizer, request, ask)
        else:
            output = await served.process.call("generate", ask)
        if is_certain(request.sampling):
            output = output._replace(logprobs=[0.0] * len(output.ids))
        output = fitted(request, output)
        result = self._result(output)
        if output.routing is None or self._keep is None:
            return result
        return dataclasses.replace(result, routing=(await self._keep(output.routing),))

    def _result(self, output: Output) -> GenerateResult:
        logprobs = np.minimum(np.asarray(output.logprobs, np.float32), 0.0)
        if len(logprobs) != len(output.ids) or not np.isfinite(logprobs).all():
            raise EngineFailure(
                f"SGLang gave {len(output.ids)} tokens and log-probabilities "
                f"{logprobs.tolist()[:8]}..., which are not finite or not as many"
            )
        return GenerateResult(
            ids=np.asarray(output.ids, np.int32),
            logprobs=logprobs,
            versions=np.full(len(output.ids), self._version, np.int32),
            finish_reason=cast(FinishReason, output.finish),
            cached_tokens=output.cached,
            passes=output.passes,
        )
