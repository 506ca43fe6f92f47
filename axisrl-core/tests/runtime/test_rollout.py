"""One episode at a time: whose fault a failure is, what is kept of it, and how small the summary
stays."""

import asyncio
import dataclasses
import json
import pickle

import numpy as np
import pytest

from axisrl.errors import EnvFailure, HarnessFailure
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.placement import InlinePlacement
from axisrl.runtime.rollout import RolloutActor, RolloutRequest, outcome_of
from axisrl.testing.fakes import Reply, ScriptedEngine
from axisrl.trace import Trace
from axisrl.types import GenerateRequest, ModelSpec, Outcome, SamplingParams, Task, WeightUpdate

SAY_TWO = Task(id="two", data={"question": "Say 2.", "answer": "2"})


@pytest.fixture
def play(stage, model_folder, tmp_path):
    """``play(*overrides)`` plays one greedy episode: (summary, trace, record)."""

    def play(*overrides, task=SAY_TWO, count=1, sampling=None):
        loaded, manager = stage.load("engine.replies={Say: '2', echo: '2'}", *overrides)
        boot = ActorBoot(
            role="rollout",
            rank=0,
            manifest=manager.manifest(),
            config=loaded.config,
            run_dir=tmp_path,
            model=ModelSpec(name="m", path=model_folder),
        )
        return asyncio.run(episodes(boot, task, count, sampling or SamplingParams(max_tokens=20)))

    return play


async def episodes(boot, task, count, sampling):
    from axisrl.builtin.memory_handles import MemoryHandleStore
    from axisrl.config.base import NoConfig
    from axisrl.types import BuildContext

    store = MemoryHandleStore(NoConfig(), BuildContext(run_dir=boot.run_dir))
    placement = InlinePlacement(store)
    engine = await placement.spawn(EngineActor, dataclasses.replace(boot, role="engine"))
    await engine.call("start")
    worker = await placement.spawn(RolloutActor, boot, engine)
    played = await asyncio.gather(
        *(
            worker.call(
                "play",
                RolloutRequest(stream="train", task=task, group=3, member=m, sampling=sampling),
            )
            for m in range(count)
        )
    )
    results = []
    for summary in played:
        blob = await store.get(summary.trace) if summary.trace else None
        trace = Trace.from_bytes(blob.tobytes()) if blob is not None else None
        record = json.loads((await store.get(summary.record)).tobytes())
        results.append((summary, trace, record))
    await placement.close()
    return results[0] if count == 1 else results


def test_a_completed_episode_is_scored_and_stored(play):
    summary, trace, record = play("env.turns=2", "rollout.max_turns=2")
    assert summary.outcome is Outcome.COMPLETED
    assert (summary.reward, summary.passed, summary.turns) == (1.0, True, 2)
    assert [node.kind for node in trace] == ["prompt", "sampled", "observation", "sampled"]
    assert summary.sampled_tokens == trace.sampled_tokens == 4
    assert [m["role"] for m in record["messages"]] == ["user", "assistant", "user", "assistant"]
    assert record["verdicts"]["exact"]["passed"]


def test_a_summary_is_at_most_a_kibibyte(play):
    summary, _, _ = play("env.turns=50", "rollout.max_turns=50", "rollout.max_context=4000")
    assert summary.turns == 50
    assert len(pickle.dumps(summary)) <= 1024


def test_a_long_error_in_any_script_keeps_the_summary_within_a_kibibyte(play, monkeypatch):
    async def step(self, action):
        raise OSError("\N{GRINNING FACE}" * 5000)

    monkeypatch.setattr("axisrl.testing.fakes.EchoEnv.step", step)
    summary, _, _ = play()
    assert summary.error.endswith("\N{GRINNING FACE}")
    assert len(pickle.dumps(summary)) <= 1024


def test_each_model_call_of_each_member_has_a_seed_of_its_own(play):
    results = play("env.turns=3", "rollout.max_turns=3", count=4)
    seeds = [node.seed for _, trace, _ in results for node in trace if node.kind == "sampled"]
    assert len(set(seeds)) == 12


@pytest.mark.parametrize(
    ("overrides", "outcome", "error"),
    [
        (["env.trouble=reset_raises"], "env_error", "scripted failure of reset"),
        (["env.trouble=step_raises"], "env_error", "scripted failure of step"),
        (
            ["env.trouble=reset_hangs", "rollout.boot_timeout_s=0.02"],
            "timeout",
            "boot_timeout_s 0.02",
        ),
        (["env.trouble=step_hangs", "rollout.run_timeout_s=0.02"], "timeout", "run_timeout_s 0.02"),
        (["verifiers.odd=stage/odd"], "verifier_error", "verifier bug"),
        (["verifiers.odd={use: stage/odd, how: cannot}"], "verifier_error", "judge is down"),
        (["verifiers.odd={use: stage/odd, how: nan}"], "verifier_error", "score nan"),
        (
            ["verifiers.odd={use: stage/odd, how: hangs}", "rollout.score_timeout_s=0.02"],
            "verifier_error",
            "verifier odd gave no verdict within 0.02 s",
        ),
        (["engine.max_context=5"], "engine_error", "leave no room"),
    ],
)
def test_an_infrastructure_failure_has_its_own_outcome_and_no_reward(
    play, overrides, outcome, error
):
    summary, _, _ = play(*overrides)
    assert summary.outcome == outcome
    assert summary.reward is None
    assert not summary.outcome.trainable
    assert error in summary.error


def test_a_verifier_that_hangs_is_timed_out_alone(play):
    hangs = "verifiers.odd={use: stage/odd, how: hangs}"
    _, _, record = play(hangs, "rollout.score_timeout_s=0.02")
    assert record["verdicts"]["exact"]["passed"]


def test_a_task_that_lacks_a_field_is_named_and_never_reward_zero(play):
    summary, _, _ = play(task=Task(id="bare", data={}))
    assert summary.outcome is Outcome.ENV_ERROR
    assert "question" in summary.error
    assert summary.reward is None


def test_text_that_cannot_be_tokenised_is_the_envs_failure_and_ends_no_run(play):
    half = Task(id="half", data={"question": "Say \ud800.", "answer": "2"})
    summary, _, record = play(task=half)
    assert summary.outcome is Outcome.ENV_ERROR
    assert record["task"]["data"]["question"] == "Say \ud800."


def test_a_result_that_is_no_result_is_the_engines_failure_and_ends_no_run(play, monkeypatch):
    sampled = ScriptedEngine._result

    def nan(self, ids, reason):
        result = sampled(self, ids, reason)
        return dataclasses.replace(result, logprobs=result.logprobs * np.nan)

    monkeypatch.setattr(ScriptedEngine, "_result", nan)
    summary, _, _ = play()
    assert summary.outcome is Outcome.ENGINE_ERROR
    assert "logprob" in summary.error


def test_a_rollout_that_failed_has_not_passed_whatever_its_other_verifiers_said(play):
    summary, _, record = play("verifiers.odd=stage/odd")
    assert record["verdicts"]["exact"]["passed"]
    assert not summary.passed


def test_what_the_engine_still_samples_for_an_episode_out_of_time_is_aborted(play, monkeypatch):
    aborted = []

    async def abort(self, session=None):
        aborted.append(session)
        return 0

    monkeypatch.setattr(EngineActor, "abort", abort)
    summary, _, _ = play("env.trouble=step_hangs", "rollout.run_timeout_s=0.02")
    assert aborted == [summary.id]


def test_a_request_that_nobody_waits_for_does_not_hold_up_new_weights(tmp_path):
    actor = EngineActor.__new__(EngineActor)
    actor._engine = ScriptedEngine(script=lambda prompt, request: Reply(text="x", hang_after=1))
    np.save(tmp_path / "1.npy", np.zeros(8, np.float32))
    request = GenerateRequest(
        id="orphan", prompt_ids=np.ones(1, np.int32), sampling=SamplingParams(), seed=0
    )
    update = WeightUpdate(
        version=1, transport="disk", location=str(tmp_path / "1.npy"), tensors=(), checksum=""
    )

    async def orphaned():
        orphan = asyncio.ensure_future(actor.generate(request))
        await asyncio.sleep(0)
        ack = await actor.update_weights(update)
        return ack, await orphan

    ack, result = asyncio.run(orphaned())
    assert ack.version == 1
    assert result.finish_reason == "abort"


def test_breaking_the_rules_is_the_policys_fault_and_is_trained_on(play):
    summary, trace, _ = play("env.forbidden='2'")
    assert summary.outcome is Outcome.POLICY_ERROR
    assert summary.reward is not None
    assert trace.sampled_tokens


def test_a_reply_cut_by_its_limit_is_truncated_and_scored(play):
    summary, trace, _ = play(
        "engine.replies={Say: 'a long answer'}", sampling=SamplingParams(max_tokens=4)
    )
    assert summary.outcome is Outcome.TRUNCATED
    assert summary.reward == 0
    assert trace[1].finish_reason == "length"


def test_the_last_turn_has_only_the_room_the_context_leaves(play):
    summary, trace, _ = play(
        "env.turns=9",
        "rollout.max_turns=9",
        "rollout.max_context=80",
        "engine.replies={S: 'abcdef'}",
    )
    assert summary.outcome is Outcome.TRUNCATED
    calls = [node for node in trace if node.kind == "sampled"]
    assert max(len(trace.ids(node.id)) for node in calls) <= 80


def test_max_turns_ends_an_episode_as_truncated(play):
    summary, _, _ = play("env.turns=5", "rollout.max_turns=2")
    assert (summary.outcome, summary.turns) == (Outcome.TRUNCATED, 2)


def test_versions_of_the_sampled_tokens_are_in_the_summary(play):
    summary, trace, _ = play()
    assert summary.versions == (0, 0)
    assert np.all(trace[1].versions == 0)


def test_at_most_max_inflight_episodes_run_at_once(play):
    results = play("rollout.max_inflight=2", count=6)
    assert all(summary.outcome is Outcome.COMPLETED for summary, _, _ in results)


def test_a_failure_keeps_its_kind_in_a_subclass():
    class NoSandbox(HarnessFailure):
        pass

    assert outcome_of(NoSandbox("gone")) is Outcome.HARNESS_ERROR
    assert outcome_of(EnvFailure("broken")) is Outcome.ENV_ERROR
