"""What a :class:`axisrl.protocols.Env` promises. It does not say how an episode should end: the
case names the actions."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import math
import multiprocessing
from pathlib import Path
from typing import Any

from axisrl.protocols.env import Env
from axisrl.testing.cases import EnvCase
from axisrl.testing.harness import CheckFailed, CheckSkipped, Subject, Suite, require
from axisrl.testing.hostile import HOSTILE, canaries
from axisrl.types import Action, Observation, StepResult

EnvSubject = Subject[EnvCase]


async def an_episode_ends_where_the_case_says(subject: EnvSubject) -> None:
    """``reset`` shows messages; every action but the last is answered, the last one ends it."""
    first, steps = await _play(subject)
    require(first.messages, "reset gave an observation without messages")
    for at, step in enumerate(steps[:-1]):
        require(not _over(step), f"the episode ended at action {at + 1} of {len(steps)}")
        require(step.observation is not None, f"action {at + 1} got no observation and no end")
    require(_over(steps[-1]), f"the episode goes on after all {len(steps)} actions of the case")


async def results_are_json_and_finite(subject: EnvSubject) -> None:
    """Observations and ``info`` are JSON; reward parts are finite numbers."""
    first, steps = await _play(subject)
    _require_json("the first observation", _plain(first))
    for at, step in enumerate(steps, start=1):
        _require_json(f"the observation of step {at}", _plain(step.observation))
        _require_json(f"the info of step {at}", dict(step.info))
        for name, value in step.reward_parts.items():
            require(math.isfinite(value), f"step {at}: reward part {name!r} is {value}")


async def same_seed_same_episode(subject: EnvSubject) -> None:
    """Two envs of one seed show and pay the same."""
    one, other = await _play(subject), await _play(subject)
    require(_told(one) == _told(other), "two episodes with the same seed and actions differ")


async def eight_at_once_do_not_mix(subject: EnvSubject) -> None:
    """Concurrent episodes are the single one."""
    alone = _told(await _play(subject))
    for number, episode in enumerate(await asyncio.gather(*(_play(subject) for _ in range(8)))):
        require(_told(episode) == alone, f"concurrent episode {number} differs from a single one")


async def stepping_after_the_end_raises(subject: EnvSubject) -> None:
    """``RuntimeError``, not a second reward."""
    env: Env = subject.build()
    try:
        await env.reset(subject.case.task)
        for text in subject.case.actions:
            await env.step(_action(text))
        try:
            await env.step(_action(subject.case.actions[-1]))
        except RuntimeError:
            return
        raise CheckFailed("step() after the end of the episode did not raise RuntimeError")
    finally:
        await env.close()


async def close_is_idempotent_at_any_time(subject: EnvSubject) -> None:
    """Before ``reset``, in mid-episode and twice in a row."""
    never_reset: Env = subject.build()
    await never_reset.close()
    env: Env = subject.build()
    await env.reset(subject.case.task)
    await env.close()
    await env.close()


async def a_policy_fault_never_raises(subject: EnvSubject) -> None:
    """Malformed, huge and hostile actions are answered; nothing in them is executed."""
    canary = subject.work_dir / "canary"
    for text in (*HOSTILE, *canaries(canary)):
        env: Env = subject.build()
        try:
            await env.reset(subject.case.task)
            step = await env.step(_action(text))
        except Exception as problem:
            raise CheckFailed(
                f"the action {text[:60]!a} raised {type(problem).__name__}: {problem}"
            ) from problem
        finally:
            await env.close()
        require(
            step.observation is not None or _over(step),
            f"the action {text[:60]!a} got neither an observation nor an end",
        )
        require(not canary.exists(), f"the action {text[:60]!a} was executed")


async def a_missing_field_raises_at_reset(subject: EnvSubject) -> None:
    """Each of ``case.required``."""
    if not subject.case.required:
        raise CheckSkipped("the case names no required field")
    for name in subject.case.required:
        data = {key: value for key, value in subject.case.task.data.items() if key != name}
        env: Env = subject.build()
        try:
            await env.reset(dataclasses.replace(subject.case.task, data=data))
        except Exception:  # noqa: BLE001 - any exception type keeps the promise
            continue
        finally:
            await env.close()
        raise CheckFailed(f"reset() did not raise for a task without {name!r}")


async def cancellation_leaves_nothing_behind(subject: EnvSubject) -> None:
    """A cancelled ``step`` followed by ``close`` leaves no asyncio task and no child process."""
    tasks, children = asyncio.all_tasks(), _children()
    for after_s in (0.0, 0.001, 0.05):
        env: Env = subject.build()
        await env.reset(subject.case.task)
        step = asyncio.ensure_future(env.step(_action(subject.case.actions[0])))
        await asyncio.wait({step}, timeout=after_s)
        step.cancel()
        await asyncio.gather(step, return_exceptions=True)
        await env.close()
    left = {task for task in asyncio.all_tasks() - tasks if not task.done()}
    require(not left, f"{len(left)} asyncio tasks still run: {[task.get_name() for task in left]}")
    require(_children() <= children, f"child processes are left: {sorted(_children() - children)}")


class EnvSuite(Suite):
    """Tries an environment with ``EnvCase``s."""

    kind = "env"
    checks = (
        an_episode_ends_where_the_case_says,
        results_are_json_and_finite,
        same_seed_same_episode,
        eight_at_once_do_not_mix,
        stepping_after_the_end_raises,
        close_is_idempotent_at_any_time,
        a_policy_fault_never_raises,
        a_missing_field_raises_at_reset,
        cancellation_leaves_nothing_behind,
    )


def _action(text: str) -> Action:
    return Action(text=text, finish_reason="stop")


def _over(step: StepResult) -> bool:
    return step.done or step.truncated


async def _play(subject: EnvSubject) -> tuple[Observation, list[StepResult]]:
    """The case's episode, closed whatever happens."""
    env: Env = subject.build()
    steps: list[StepResult] = []
    try:
        first = await env.reset(subject.case.task)
        for text in subject.case.actions:
            steps.append(await env.step(_action(text)))
            if _over(steps[-1]):
                break
        named = len(subject.case.actions)
        require(len(steps) == named, f"the episode ended after {len(steps)} of {named} actions")
        return first, steps
    finally:
        await env.close()


def _plain(observation: Observation | None) -> Any:
    if observation is None:
        return None
    return {
        "messages": [message.to_chat() for message in observation.messages],
        "tools": [dict(tool) for tool in observation.tools],
    }


def _told(episode: tuple[Observation, list[StepResult]]) -> Any:
    first, steps = episode
    return _plain(first), [
        (_plain(step.observation), dict(step.reward_parts), step.done, step.truncated)
        for step in steps
    ]


def _require_json(what: str, value: Any) -> None:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as problem:
        raise CheckFailed(f"{what} is not JSON: {problem}") from problem


def _children() -> set[int]:
    """Process ids of our children; the kernel's list where there is one."""
    found = {child.pid for child in multiprocessing.active_children() if child.pid is not None}
    for path in Path("/proc/self/task").glob("*/children"):
        found.update(int(pid) for pid in path.read_text(encoding="ascii").split())
    return found
