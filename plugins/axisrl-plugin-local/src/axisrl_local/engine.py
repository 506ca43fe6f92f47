"""``local/engine``: many requests at once on one model, on a CPU or one CUDA device.

1. ``generate`` queues a request; one task serves as long as there are any. Each turn it gives free
   slots to waiting requests, runs one forward pass in the engine's own thread, and hands out what
   was sampled. New requests join and finished ones leave between any two passes.
2. Keys and values of a prompt are computed once and shared by every request that starts alike
   (:mod:`axisrl_local.scheduler`), until the weights change.
3. A token's logprob is under the distribution it was drawn from, temperature and masks applied; a
   greedy token's (temperature 0) is of the softmax at temperature 1.
4. A request's tokens and logprobs depend on its prompt, sampling parameters, seed and the weights,
   and with ``batch_invariant`` on nothing else, bit by bit: not on other requests, on the cache, or
   on being aborted and resumed.
5. ``score`` runs a pass of its own over given tokens (:mod:`axisrl_local.scoring`).
6. ``offload`` moves the weights to host memory and gives up the cache; requests wait until both are
   back.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

import numpy as np

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.protocols import EnginePart
from axisrl.runtime.requests import check_sampling
from axisrl.runtime.stopping import StopRule
from axisrl.types import (
    BuildContext,
    FinishReason,
    FloatArray,
    GenerateRequest,
    GenerateResult,
    IntArray,
    ModelSpec,
    WeightAck,
    WeightUpdate,
)
from axisrl_local.config import EngineConfig
from axisrl_local.runner import ModelRunner, Sampled
from axisrl_local.scheduler import Job, Plan, Scheduler

T = TypeVar("T")
Future = asyncio.Future[GenerateResult]


class LocalEngine:
    """A :class:`axisrl.protocols.ScoringEngine` and :class:`axisrl.protocols.OffloadingEngine`. All
    methods belong to one event loop at a time."""

    def __init__(self, config: EngineConfig, context: BuildContext) -> None:
        self._config = config
        self._logger = context.logger
        self._runner: ModelRunner | None = None
        self._waiting: list[Job] = []
        self._futures: dict[Job, Future] = {}
        self._aborted: set[Job] = set()
        self._serving: asyncio.Task[None] | None = None
        self._paused = False
        self._updating = False
        self._away: set[EnginePart] = set()
        self._version = 0

    async def start(self, model: ModelSpec) -> None:
        """Load the model as version 0; a second start replaces the model."""
        await self.stop()
        config = self._config
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="axisrl-engine")
        try:
            runner = await self._compute(partial(ModelRunner, config, model))
        except BaseException:
            self._thread.shutdown(wait=False)
            raise
        self._scheduler = Scheduler(config.max_batch, runner.context, config.step_tokens)
        self._version = 0
        self._paused = False
        self._away.clear()
        self._runner = runner

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """See :meth:`axisrl.protocols.RolloutEngine.generate`. Cancelling it frees its slot."""
        runner = self._running()
        _check(request, runner)
        sampling = request.sampling
        before = request.prompt_ids[len(request.prompt_ids) - request.sampled_before :].tolist()
        stop_ids = runner.stop_ids | frozenset(sampling.stop_token_ids)
        job = Job(request=request, rule=StopRule(stop_ids, sampling.stop, runner.decode, before))
        if request.sampled_before >= sampling.max_tokens:
            return job.result("length")
        future: Future = asyncio.get_running_loop().create_future()
        self._futures[job] = future
        self._waiting.append(job)
        self._serve_soon()
        return await future

    async def score(self, ids: IntArray, temperature: float) -> FloatArray:
        """See :meth:`axisrl.protocols.ScoringEngine.score`. Runs between two forward passes of the
        requests that generate; a pause does not hold it."""
        runner = self._running()
        _check_score(ids, temperature, runner)
        if "weights" in self._away:
            raise EngineFailure("the engine's weights are off the device", fix="reload them first")
        if len(ids) == 1:
            return np.zeros(0, np.float32)
        try:
            logprobs = await self._compute(partial(runner.score, ids, temperature))
        except RuntimeError as problem:  # torch's, an exhausted device's included
            raise EngineFailure(f"scoring {len(ids)} tokens failed: {problem}") from problem
        if not np.isfinite(logprobs).all():
            raise EngineFailure(f"the model's logits for {len(ids)} given tokens are not finite")
        return logprobs

    async def abort(self, session: str | None = None) -> int:
        """See :meth:`axisrl.protocols.RolloutEngine.abort`. Returns once they are over."""
        futures = []
        for job, future in self._futures.items():
            if not future.done() and session in (None, job.request.session):
                self._aborted.add(job)
                futures.append(future)
        if futures:
            self._serve_soon()
            await asyncio.wait(futures)
        return sum(_was_aborted(future) for future in futures)

    async def update_weights(self, update: WeightUpdate) -> WeightAck:
        """See :meth:`axisrl.protocols.RolloutEngine.update_weights`."""
        runner = self._running()
        what = f"local/engine cannot take weights {update.version} over {self._version} now"
        held = self._paused or self._away
        running = len(self._scheduler.active) + (0 if held else len(self._waiting))
        if running or self._updating:
            raise WeightSyncError(
                f"{what}: {running} requests run",
                fix="pause and abort them, or wait until they are over",
            )
        if "weights" in self._away:
            raise WeightSyncError(f"{what}: its own are off the device", fix="reload them first")
        self._updating = True
        try:
            checksum = await self._compute(partial(runner.load_update, update))
            self._scheduler.forget()
            self._version = update.version
        finally:
            self._updating = False
            self._serve_soon()
        return WeightAck(version=update.version, checksum=checksum)

    async def pause(self) -> None:
        """Start no new request until :meth:`resume`."""
        self._paused = True

    async def resume(self) -> None:
        """Undo :meth:`pause`."""
        self._paused = False
        self._serve_soon()

    async def offload(self, parts: Collection[EnginePart]) -> None:
        """See :meth:`axisrl.protocols.OffloadingEngine.offload`. On a CPU the cache alone is
        freed."""
        runner = self._running()
        if self._scheduler.active or self._updating:
            raise EngineFailure(
                "local/engine cannot hand its memory over now: "
                f"{len(self._scheduler.active)} requests run",
                fix="pause and abort them, or wait until they are over",
            )
        self._away.update(parts)
        await self._compute(partial(runner.offload, parts))
        if "kv_cache" in parts:
            self._scheduler.forget()

    async def reload(self, parts: Collection[EnginePart]) -> None:
        """See :meth:`axisrl.protocols.OffloadingEngine.reload`."""
        runner = self._running()
        await self._compute(partial(runner.reload, parts))
        self._away.difference_update(parts)
        self._serve_soon()

    async def stop(self) -> None:
        """Free the model. Requests that are not over raise ``EngineFailure``."""
        if self._runner is None:
            return
        self._fail(self._futures, "the engine was stopped")
        self._runner = None
        if self._serving is not None and not self._serving.done():
            await asyncio.wait([self._serving])
        self._thread.shutdown()
        del self._scheduler

    def _running(self) -> ModelRunner:
        if self._runner is None:
            raise EngineFailure("the engine is not started", fix="await engine.start(model) first")
        return self._runner

    async def _compute(self, call: Callable[[], T]) -> T:
        """One thread of its own: torch keeps a team of threads for every thread that calls it."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _serve_soon(self) -> None:
        if self._runner is not None and (self._serving is None or self._serving.done()):
            self._serving = asyncio.create_task(self._serve(self._runner))
            self._serving.add_done_callback(self._served)

    async def _serve(self, runner: ModelRunner) -> None:
        """Run passes until nothing can run."""
        while True:
            self._leave()
            self._join()
            if not self._scheduler.active:
                return
            plan = self._scheduler.plan(fixed=self._config.batch_invariant)
            unsound: list[int] = []
            try:
                sampled = await self._compute(partial(runner.step, plan))
                self._scheduler.computed(plan)
                unsound = self._hand_out(plan, sampled)
            # Whatever the model raises: the requests of this pass must hear of it.
            except Exception as problem:
                self._logger.exception("a forward pass of local/engine failed")
                await self._recover(runner, problem)
            if unsound:
                self._leave()
                await self._compute(partial(runner.clear, unsound))

    def _served(self, task: asyncio.Task[None]) -> None:
        """A device that cannot even be cleared must not leave its callers waiting."""
        if not task.cancelled() and (problem := task.exception()) is not None:
            self._fail(self._futures, f"the engine broke: {type(problem).__name__}: {problem}")

    def _leave(self) -> None:
        """Free the slots of requests that are over, were aborted or whose caller is gone."""
        for job in self._aborted & self._futures.keys():
            self._finish(job, "abort")
        self._aborted.clear()
        self._futures = {job: future for job, future in self._futures.items() if not future.done()}
        self._waiting = [job for job in self._waiting if job in self._futures]
        for slot, job in list(self._scheduler.active.items()):
            if job not in self._futures:
                self._scheduler.release(slot)

    def _join(self) -> None:
        if self._waiting and not (self._paused or self._updating or self._away):
            admitted = set(self._scheduler.admit(self._waiting))
            self._waiting = [job for job in self._waiting if job not in admitted]

    def _hand_out(self, plan: Plan, sampled: dict[int, Sampled]) -> list[int]:
        """Give each request its token; the slots whose logits were not finite are returned."""
        unsound = []
        for slot, job in plan.sampled.items():
            token, logprob = sampled[slot]
            if not math.isfinite(logprob):
                where = f"token {len(job.ids)} of request {job.request.id!r}"
                self._fail([job], f"the model's logits for {where} are not finite")
                self._scheduler.spoil(slot)
                unsound.append(slot)
                continue
            job.ids.append(token)
            job.logprobs.append(logprob)
            job.versions.append(self._version)
            room = self._scheduler.append(slot, token)
            asked = job.request.sampling.max_tokens - job.request.sampled_before
            if job.rule.stops(token):
                self._finish(job, "stop")
            elif not room or len(job.ids) >= asked:
                self._finish(job, "length")
        return unsound

    def _finish(self, job: Job, reason: FinishReason) -> None:
        future = self._futures[job]
        if not future.done():
            future.set_result(job.result(reason))

    def _fail(self, jobs: Iterable[Job], message: str, cause: Exception | None = None) -> None:
        for job in jobs:
            future = self._futures[job]
            if not future.done():
                failure = EngineFailure(message)
                failure.__cause__ = cause
                future.set_exception(failure)

    async def _recover(self, runner: ModelRunner, problem: Exception) -> None:
        """Fail what was in flight; requests that wait get a clean cache."""
        message = f"a forward pass failed: {type(problem).__name__}: {problem}"
        self._fail(self._scheduler.active.values(), message, problem)
        self._leave()
        self._scheduler.forget()
        await self._compute(partial(runner.clear, range(self._config.max_batch + 1)))


def _was_aborted(future: Future) -> bool:
    """A request may end by itself, or lose its caller, before the abort reaches it."""
    ended = not future.cancelled() and future.exception() is None
    return ended and future.result().finish_reason == "abort"


def _check(request: GenerateRequest, runner: ModelRunner) -> None:
    """Refuse what cannot run, this request alone."""
    what = f"request {request.id!r} is refused: the prompt"
    _check_ids(what, request.prompt_ids, runner.context - 1, runner)
    check_sampling(request)


def _check_score(ids: IntArray, temperature: float, runner: ModelRunner) -> None:
    """Refuse what cannot be scored."""
    _check_ids("cannot score: the text", ids, runner.context, runner)
    if not (math.isfinite(temperature) and temperature > 0):
        raise EngineFailure(
            f"cannot score at temperature {temperature}", fix="use a temperature above 0"
        )


def _check_ids(what: str, ids: IntArray, limit: int, runner: ModelRunner) -> None:
    """Refuse ids of which at most ``limit`` fit."""
    if ids.ndim != 1 or not len(ids):
        raise EngineFailure(f"{what} has shape {ids.shape}", fix="send one or more token ids")
    if len(ids) > limit:
        raise EngineFailure(
            f"{what} has {len(ids)} tokens of a context of {runner.context}",
            fix="raise engine.max_context, or send fewer tokens",
        )
    if int(ids.min()) < 0 or int(ids.max()) >= runner.vocabulary:
        raise EngineFailure(
            f"{what} has an id outside the vocabulary of {runner.vocabulary}",
            fix="use the tokenizer of the served model",
        )
