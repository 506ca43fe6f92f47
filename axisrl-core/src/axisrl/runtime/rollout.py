"""RolloutActor: plays episodes. Builds the env, drives it, scores the result, stores the tokens,
returns a summary.

1. Boot, run and every verifier and reward have deadlines of their own, so a score is still possible
   when the run's time is up.
2. Whatever breaks is attributed to its boundary (env, engine, verifier) and becomes the rollout's
   outcome; only a cancellation of the whole run and a store that keeps nothing leave
   :meth:`RolloutActor.play` as an exception.
3. Tokens and messages go to the store, and what its calls told of experts
   (:mod:`axisrl.runtime.routing`); at most 1 KiB goes back to the driver. They belong to the
   rollout, so that what a worker kept of one before it was lost can be freed.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import json
import logging
import time
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from axisrl.config.schema import needed
from axisrl.errors import EngineFailure, EnvFailure, RolloutFailure
from axisrl.protocols import Env, HandleStore, Rollout
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.boundaries import abandonable, at, inside, outcome_of
from axisrl.runtime.callers import Caller
from axisrl.runtime.chat import Conversation
from axisrl.runtime.judges import judging_of
from axisrl.runtime.partial import continued, joined
from axisrl.runtime.records import record_to_json
from axisrl.runtime.routing import joined_parts, require_whole
from axisrl.runtime.seeds import derive_seed
from axisrl.runtime.staff import Peers
from axisrl.runtime.thin import short_error, short_id, short_parts
from axisrl.types import (
    GenerateRequest,
    GenerateResult,
    Handle,
    Outcome,
    Payload,
    RewardResult,
    RolloutSummary,
    SamplingParams,
    StepResult,
    Task,
    Verdict,
)

_LOGGER = logging.getLogger("axisrl.rollout")


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRequest:
    """One episode to play."""

    stream: Literal["train", "eval"]
    task: Task
    group: int
    member: int
    sampling: SamplingParams

    @property
    def id(self) -> str:
        """Unique within a run and the same in a resumed one."""
        return f"{self.stream}-{self.group:06d}-{self.member:03d}"

    def owner(self, worker: int) -> str:
        """In whose name the worker of a rank keeps what the episode leaves."""
        return f"rollout-{worker}/{self.id}"


@dataclass(slots=True)
class Episode:
    """What is known of an episode while it goes on."""

    conversation: Conversation
    turns: int = 0
    outcome: Outcome = Outcome.COMPLETED
    error: str = ""
    turn_parts: list[dict[str, float]] = field(default_factory=list)
    info: dict[str, Any] = field(default_factory=dict)
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    reward: RewardResult | None = None
    parts: list[Handle] = field(default_factory=list)
    """Experts told by its model calls, those of calls that were begun anew among them."""
    kept_parts: list[Handle] = field(default_factory=list)
    """Those of the trace's calls, in their order."""
    routing: Payload | None = None
    """What the kept parts say."""

    def end(self, outcome: Outcome, error: str = "") -> None:
        """Set how it ended."""
        self.outcome, self.error = outcome, error

    def absorb(self, result: StepResult) -> None:
        """Keep what an env step reported."""
        self.turn_parts.append(dict(result.reward_parts))
        self.info.update(result.info)


class RolloutActor(Caller):
    """Plays many episodes at once against one engine, or several that serve the same weights."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None, peers: Peers) -> None:
        """``peers``: kind -> its replicas; engines are there."""
        super().__init__(boot, store, peers)
        self._engine = self.routers["engine"]
        self._judging = judging_of(self)
        self._tokenizer = self.services["tokenizer"]
        self._new_env = self.factory("env", needed(boot.config.env, "env"), "env")
        self._slots = asyncio.Semaphore(boot.config.rollout.max_inflight)
        self.started()

    async def play(self, request: RolloutRequest) -> RolloutSummary:
        """Play one episode to its end, whatever that is."""
        async with self._slots:
            begun = time.monotonic()
            episode = Episode(Conversation(self._tokenizer))
            try:
                await self._episode(request, episode)
            except RolloutFailure as failure:
                episode.end(outcome_of(failure), _one_line(failure))
            finally:
                self._engine.release(request.id)
                await self.store.release(episode.parts)
            seconds = time.monotonic() - begun
        await asyncio.sleep(0)  # rollouts that go on come first: the engine waits for them
        return await self._summary(request, episode, seconds)

    async def _episode(self, request: RolloutRequest, episode: Episode) -> None:
        limits = self.boot.config.rollout
        env: Env | None = None
        limit = f"rollout.boot_timeout_s {limits.boot_timeout_s:g}"
        try:
            try:
                async with asyncio.timeout(limits.boot_timeout_s):
                    env = await at("env", self._build_env())
                    observation = await at("env", abandonable(env.reset(request.task)))
                with inside("env"):
                    episode.conversation.observe(observation)
                limit = f"rollout.run_timeout_s {limits.run_timeout_s:g}"
                async with asyncio.timeout(limits.run_timeout_s):
                    await self._drive(env, request, episode)
            except TimeoutError:
                episode.end(Outcome.TIMEOUT, f"the episode took longer than {limit}")
                await self._abandon(request.id, limits.boot_timeout_s)
        finally:
            if env is not None:
                await _close(env, limits.boot_timeout_s)
        if episode.outcome.trainable:
            if episode.kept_parts:
                episode.routing = await joined_parts(self.store, episode.kept_parts)
            await self._score(request, episode)

    async def _build_env(self) -> Env:
        env: Env = self._new_env()
        return env

    async def _drive(self, env: Env, request: RolloutRequest, episode: Episode) -> None:
        """Model call, env step, until the env, a limit or a fault ends it."""
        conversation = episode.conversation
        while episode.turns < self.boot.config.rollout.max_turns:
            room = self.boot.config.rollout.max_context - len(conversation.context)
            if room < 1:
                return episode.end(Outcome.TRUNCATED, "the context is full")
            drawn = await self._generate(request, episode, room)
            with inside("engine"):
                action = conversation.act(*drawn)
            episode.turns += 1
            step = await at("env", abandonable(env.step(action)))
            episode.absorb(step)
            if step.done or step.truncated:
                return episode.end(*_ending(step, action.finish_reason))
            if step.observation is None:
                raise EnvFailure("the env is not done but showed no observation")
            with inside("env"):
                conversation.observe(step.observation)
        return episode.end(Outcome.TRUNCATED, "max_turns reached")

    async def _generate(
        self, request: RolloutRequest, episode: Episode, room: int
    ) -> tuple[GenerateResult, SamplingParams, int]:
        sampling = request.sampling
        if sampling.max_tokens > room:
            sampling = dataclasses.replace(sampling, max_tokens=room)
        where = (request.stream, request.group, request.task.id, request.member, episode.turns)
        seed = derive_seed(self.boot.config.seed, *where)
        call = GenerateRequest(
            id=f"{request.id}-{episode.turns}",
            prompt_ids=episode.conversation.context,
            sampling=sampling,
            seed=seed,
            session=request.id,
            routing_from=episode.conversation.routed if self._keeps_routing(request) else None,
        )
        return await self._sampled(call, episode), sampling, seed

    def _keeps_routing(self, request: RolloutRequest) -> bool:
        return self.boot.config.rollout.routing and request.stream == "train"

    async def _sampled(self, call: GenerateRequest, episode: Episode) -> GenerateResult:
        """One model call, however often weight updates interrupt it. Resumed it goes on from its
        own tokens, which keep the versions and log-probabilities they were sampled with."""
        partial, pieces = self.boot.config.schedule.partial, list[GenerateResult]()
        while True:
            part = continued(call, pieces)
            work = self._engine.call("generate", part, session=part.session)
            result: GenerateResult = await at("engine", work)
            episode.parts += result.routing
            if result.finish_reason != "abort":
                break
            if partial == "off":
                raise EngineFailure(f"the engine ended {call.id} without finishing it")
            if partial == "resume":
                pieces.append(result)
        whole = joined([*pieces, result])
        if not len(whole.ids):
            raise EngineFailure(f"the engine ended {call.id} without a token")
        require_whole(call, whole)
        episode.kept_parts += whole.routing
        return whole

    async def _abandon(self, session: str, limit_s: float) -> None:
        """End what the engine still samples for an episode; in a process of its own it does not
        see that nobody waits any more. An engine that does not answer fails the next call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await at("engine", self._engine.tell(session, "abort", session))

    async def _score(self, request: RolloutRequest, episode: Episode) -> None:
        rollout = Rollout(
            id=request.id,
            task=request.task,
            member=request.member,
            outcome=episode.outcome,
            messages=tuple(episode.conversation.messages),
            trace=episode.conversation.trace,
            turns=episode.turns,
            turn_parts=tuple(episode.turn_parts),
            info=episode.info,
        )
        episode.reward = await self._judging.score(rollout, episode.verdicts)

    async def _summary(
        self, request: RolloutRequest, episode: Episode, seconds: float
    ) -> RolloutSummary:
        trace = episode.conversation.trace
        if episode.outcome.trainable and not trace.sampled_tokens:
            episode.end(Outcome.ENV_ERROR, "the episode ended before the policy said anything")
        sampled = [node.versions for node in trace if node.versions is not None]
        versions = np.concatenate(sampled) if sampled else np.zeros(1, np.int32)
        reward = episode.reward if episode.outcome.trainable else None
        record = record_to_json(request.task, episode.conversation.messages, episode.verdicts)
        judged = reward is not None and bool(episode.verdicts)
        owner, routing = request.owner(self.boot.rank), episode.routing
        return RolloutSummary(
            id=request.id,
            task_id=short_id(request.task.id),
            group=request.group,
            member=request.member,
            outcome=episode.outcome,
            reward=None if reward is None else reward.total,
            parts={} if reward is None else short_parts(reward.parts),
            passed=judged and all(v.passed for v in episode.verdicts.values()),
            turns=episode.turns,
            sampled_tokens=trace.sampled_tokens,
            prompt_tokens=sum(len(node.ids) for node in trace) - trace.sampled_tokens,
            versions=(int(versions.min()), int(versions.max())),
            trace=await self.put_bytes(trace.to_bytes(), owner) if len(trace) else None,
            record=await self.put_bytes(json.dumps(record).encode(), owner),
            turn_rewards=await self._put_turns(reward, owner),
            routing=None if routing is None else await self.put(routing, owner=owner),
            error=short_error(episode.error),
            seconds=seconds,
        )

    async def _put_turns(self, reward: RewardResult | None, owner: str) -> Handle | None:
        if reward is None or reward.per_turn is None:
            return None
        return await self.put(np.asarray(reward.per_turn, np.float32), owner=owner)


async def _close(env: Env, limit_s: float) -> None:
    """Close an env; one that cannot be closed must not take a finished episode with it."""
    try:
        async with asyncio.timeout(limit_s):
            await abandonable(env.close())
    except Exception as error:  # noqa: BLE001 - foreign code; the result is already decided
        _LOGGER.warning("an env failed to close: %s", error)


def _ending(step: StepResult, finish_reason: str) -> tuple[Outcome, str]:
    if step.policy_error:
        return Outcome.POLICY_ERROR, step.policy_error
    if step.truncated or finish_reason == "length":
        return Outcome.TRUNCATED, ""
    return Outcome.COMPLETED, ""


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
