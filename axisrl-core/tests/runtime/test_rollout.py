"""One episode at a time: whose fault a failure is, what is kept of it, and how small the summary
stays."""

import asyncio
import contextlib
import dataclasses
import json
import pickle
from pathlib import Path

import numpy as np
import pytest

from axisrl.runtime.busy import BusyClock
from axisrl.runtime.engine import EngineActor
from axisrl.runtime.gate import Gate
from axisrl.runtime.placement import InlinePlacement
from axisrl.runtime.rollout import RolloutActor, RolloutRequest
from axisrl.runtime.thin import SUMMARY_BYTES, short_id, wire_bytes
from axisrl.testing.fakes import Reply, ScriptedEngine, scripted_experts
from axisrl.trace import Trace
from axisrl.types import (
    GenerateRequest,
    GenerateResult,
    Outcome,
    SamplingParams,
    Task,
    WeightUpdate,
)

JUDGES = Path(__file__).with_name("judges.py")
SAY_TWO = Task(id="two", data={"question": "Say 2.", "answer": "2"})


@pytest.fixture
def play(stage):
    """``play(*overrides)`` plays one greedy episode: (summary, trace, record). What the store holds
    for turn rewards is in ``play.turn_rewards``."""

    def play(*overrides, task=SAY_TWO, count=1, sampling=None, stream="train"):
        replies = "engine.replies={Say: '2', echo: '2'}"
        boot = stage.boot(replies, *overrides, plugins=[JUDGES])
        sampling = sampling or SamplingParams(max_tokens=20)
        first = RolloutRequest(stream=stream, task=task, group=3, member=0, sampling=sampling)
        results, play.kept = asyncio.run(episodes(boot, first, count))
        play.turn_rewards = [rewards for *_, rewards, _ in results]
        play.routing = [routing for *_, routing in results]
        found = [result[:3] for result in results]
        return found[0] if count == 1 else found

    return play


async def episodes(boot, first, count):
    from axisrl.builtin.memory_handles import MemoryHandleStore
    from axisrl.config.base import NoConfig
    from axisrl.types import BuildContext

    store = MemoryHandleStore(NoConfig(), BuildContext(run_dir=boot.run_dir))
    placement = InlinePlacement(store)
    engine = await placement.spawn(EngineActor, dataclasses.replace(boot, role="engine"))
    await engine.call("start")
    worker = await placement.spawn(RolloutActor, boot, {"engine": [engine]})
    played = await asyncio.gather(
        *(worker.call("play", dataclasses.replace(first, member=member)) for member in range(count))
    )
    results = []
    for summary in played:
        blob = await store.get(summary.trace) if summary.trace else None
        trace = Trace.from_bytes(blob.tobytes()) if blob is not None else None
        record = json.loads((await store.get(summary.record)).tobytes())
        per_turn = await store.get(summary.turn_rewards) if summary.turn_rewards else None
        routing = await store.get(summary.routing) if summary.routing else None
        results.append((summary, trace, record, per_turn, routing))
    kept = (await store.stats()).items
    assert worker._actor._engine.sessions == {}, "an episode is over, its session is not"
    await placement.close()
    return results, kept


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


def test_a_summary_with_several_rewards_and_turns_is_at_most_a_kibibyte(play):
    length, weights = "rewards.length=core/length", "reward_weights.length=0.3333333333333333"
    main = "rewards.main={use: core/sum, turn_level: true, env_weights: {said: 0.1}}"
    limits = ("env.turns=50", "rollout.max_turns=50", "rollout.max_context=4000")
    summary, _, _ = play(main, length, weights, *limits)
    assert summary.turn_rewards.shape == (50,)
    assert len(pickle.dumps(summary)) <= 1024


def test_experts_of_an_episode_are_one_array_and_its_calls_parts_are_gone(play):
    limits = ("env.turns=3", "rollout.max_turns=3", "rollout.routing=true")
    summary, trace, _ = play(*limits)
    ids = trace.ids(len(trace) - 1)
    assert summary.routing.shape == (3, len(ids) - 1, 2)
    assert np.array_equal(play.routing[0], scripted_experts(ids)[:-1].transpose(1, 0, 2))
    assert play.kept == 3, "trace, record and experts"
    assert len(pickle.dumps(summary)) <= 1024


def test_an_episode_that_failed_leaves_no_experts(play):
    trouble = ("env.turns=3", "env.trouble=step_raises", "rollout.routing=true")
    summary, _, _ = play(*trouble)
    assert summary.outcome is Outcome.ENV_ERROR
    assert summary.routing is None and play.kept == 2


def test_evaluations_ask_for_no_experts(play):
    summary, _, _ = play("rollout.routing=true", stream="eval")
    assert summary.routing is None and play.kept == 2


@pytest.mark.parametrize("tokens", [1_000, 32_000, 256_000])
def test_a_trajectory_of_any_length_costs_the_driver_at_most_a_kibibyte(play, monkeypatch, tokens):
    async def generate(self, request):
        column = np.ones(tokens, np.int32)
        return GenerateResult(
            ids=column, logprobs=-column.astype(np.float32), versions=column, finish_reason="stop"
        )

    monkeypatch.setattr(ScriptedEngine, "generate", generate)
    sampling = SamplingParams(max_tokens=tokens)
    room = tokens + 1000
    limits = (f"rollout.max_context={room}", f"train.max_tokens_per_batch={room}")
    summary, trace, _ = play(*limits, sampling=sampling)
    assert summary.outcome is Outcome.COMPLETED
    assert summary.sampled_tokens == trace.sampled_tokens == tokens
    sent = RolloutRequest(stream="train", task=SAY_TWO, group=3, member=0, sampling=sampling)
    assert wire_bytes(sent) + wire_bytes(summary) <= SUMMARY_BYTES


def test_long_task_ids_are_shortened_for_the_driver_and_whole_in_the_record(play):
    task = dataclasses.replace(SAY_TWO, id="a long name " * 100)
    summary, _, record = play(task=task)
    assert summary.task_id == short_id(task.id) != task.id
    assert record["task"]["id"] == task.id


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


@pytest.mark.parametrize("method", ["reset", "step", "close"])
def test_an_env_that_will_not_be_cancelled_is_left_alone(play, monkeypatch, method):
    monkeypatch.setattr("axisrl.runtime.boundaries._LETTING_GO_S", 0.01)
    over = []

    async def stubborn(self, *args):
        while not over:
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.2)
                over.append("end of the test")

    monkeypatch.setattr(f"axisrl.testing.fakes.EchoEnv.{method}", stubborn)
    limits = ("rollout.boot_timeout_s=0.02", "rollout.run_timeout_s=0.02")
    summary, _, _ = play(*limits)
    assert summary.outcome is (Outcome.COMPLETED if method == "close" else Outcome.TIMEOUT)


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


def test_a_request_that_nobody_waits_for_holds_up_neither_new_weights_nor_a_hand_over(tmp_path):
    actor = EngineActor.__new__(EngineActor)
    actor._gate, actor._waits, actor._clock = Gate(), False, BusyClock("generate")
    actor._away = set()
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
        ended = (await orphan).finish_reason
        again = asyncio.ensure_future(actor.generate(request))
        await asyncio.sleep(0)
        await actor.offload(["weights", "kv_cache"])
        return ack.version, ended, (await again).finish_reason

    assert asyncio.run(orphaned()) == (1, "abort", "abort")


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


TWO_TURNS = ("env.turns=2", "rollout.max_turns=2")


def test_rewards_are_summed_by_weight(play):
    length = "rewards.length={use: core/length, coef: 0.125}"
    summary, trace, _ = play(length, "reward_weights={length: 0.5, main: 2}")
    assert trace.sampled_tokens == 2
    assert summary.parts == {"exact": 2.0, "env.said": 0.0, "length": -0.125}
    assert summary.reward == 1.875
    assert summary.turn_rewards is None


def test_turn_rewards_are_stored_and_what_is_earned_at_the_end_is_left_out(play):
    main = "rewards.main={use: core/sum, turn_level: true, env_weights: {said: 0.25}}"
    summary, _, _ = play(main, "rewards.extra=judges/pays", "reward_weights.main=2", *TWO_TURNS)
    (per_turn,) = play.turn_rewards
    assert per_turn.dtype == np.float32
    assert per_turn.tolist() == [0.5, 0.5]
    assert summary.reward == 4.0  # 1 a turn together, 2 of the verifier, 1 of the other reward


def test_turn_rewards_are_one_a_model_call_even_where_the_env_gave_nothing(play):
    play("rewards.main={use: judges/pays, per_turn: [0, 1]}", *TWO_TURNS)
    assert play.turn_rewards[0].tolist() == [0.0, 1.0]


@pytest.mark.parametrize(
    ("reward", "error"),
    [
        ("{use: judges/pays, per_turn: [0.5]}", "reward main gave 1 turns of a rollout that has 2"),
        ("judges/breaks", "reward main: KeyError: 'rubric'"),
    ],
)
def test_a_reward_that_breaks_is_named_and_is_no_reward_of_zero(play, reward, error):
    summary, _, _ = play(f"rewards.main={reward}", *TWO_TURNS)
    assert (summary.outcome, summary.reward) == (Outcome.VERIFIER_ERROR, None)
    assert error in summary.error
    assert summary.turn_rewards is None


def test_a_reward_may_wait_for_its_number(play):
    summary, _, _ = play("rewards.main=judges/waits")
    assert summary.reward == 0.5


def test_a_reward_that_waits_too_long_is_cancelled_and_named(play):
    summary, _, _ = play("rewards.main=judges/waits", "rollout.score_timeout_s=0.02")
    assert summary.outcome is Outcome.VERIFIER_ERROR
    assert summary.error == "reward main gave no result within 0.02 s"


def test_a_verifier_that_raises_is_named(play):
    summary, _, _ = play("verifiers.odd=stage/odd")
    assert summary.error == "verifier odd: RuntimeError: verifier bug"


def test_verifiers_find_the_environment_of_their_process(play, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", "s3cret")
    _, _, record = play("verifiers.reads=judges/reads")
    assert record["verdicts"]["reads"]["detail"] == "s3cret"
