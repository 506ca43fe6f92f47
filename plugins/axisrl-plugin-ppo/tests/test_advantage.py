"""ppo/gae: the golden values, an independent reference, and which tokens it sees."""

import time
from pathlib import Path

import numpy as np
import pytest

from axisrl.errors import ConfigError, RunFailed
from axisrl.runtime.credit import turns_of
from axisrl.runtime.trajectory import Trajectory
from axisrl.trace import Trace
from axisrl.types import (
    BuildContext,
    GenerateResult,
    Outcome,
    RolloutGroup,
    RolloutSummary,
    SamplingParams,
    Turns,
    Values,
)
from axisrl_ppo.advantage import GaeAdvantage
from axisrl_ppo.config import GaeConfig

CONTEXT = BuildContext(run_dir=Path("unused"))


def build(**options):
    return GaeAdvantage(GaeConfig(**options), CONTEXT)


def turns(tokens, rewards):
    return Turns(tokens=tuple(tokens), rewards=np.asarray(rewards, np.float32))


def values(tokens, last=0.0):
    return Values(tokens=np.asarray(tokens, np.float32), last=last)


def group_of(members, outcome=Outcome.COMPLETED):
    summaries = tuple(
        RolloutSummary(
            id=f"r{at}",
            task_id="t",
            group=0,
            member=at,
            outcome=outcome,
            reward=float(member.rewards.sum()),
            sampled_tokens=sum(member.tokens),
        )
        for at, member in enumerate(members)
    )
    return RolloutGroup(group=0, task_id="t", members=summaries, turns=tuple(members))


def gae(member, value, outcome=Outcome.COMPLETED, **options):
    """Advantages and returns of one rollout."""
    result = build(**options)(group_of([member], outcome), (value,))
    return result.advantages[0].tolist(), result.returns[0].tolist()


def each_token(rewards):
    """Turns of one token each, so that every token can have a reward of its own."""
    return turns([1] * len(rewards), rewards)


def sampled(trace, parent, ids):
    result = GenerateResult(
        ids=np.asarray(ids, np.int32),
        logprobs=np.zeros(len(ids), np.float32),
        versions=np.zeros(len(ids), np.int32),
        finish_reason="stop",
    )
    return trace.append_sampled(result, parent=parent, sampling=SamplingParams(), seed=0)


def reference(rewards, value, last, gamma, lam):
    """Sums of discounted deltas, token by token, in float64."""
    ahead = [*value[1:], last]
    deltas = [r + gamma * later - now for r, later, now in zip(rewards, ahead, value, strict=True)]
    return [
        sum((gamma * lam) ** (later - t) * deltas[later] for later in range(t, len(deltas)))
        for t in range(len(deltas))
    ]


def test_rewards_0_1_and_values_02_04_give_advantages_015_06_and_returns_035_10():
    advantages, returns = gae(each_token([0, 1]), values([0.2, 0.4]), gamma=0.5, lam=0.5)
    assert advantages == pytest.approx([0.15, 0.6])
    assert returns == pytest.approx([0.35, 1.0])


def test_a_reward_at_the_last_trained_of_four_tokens_gives_0_1_1_0():
    trace = Trace()
    prompt = trace.append("prompt", [1], parent=None)
    answer = sampled(trace, prompt, [2, 3])
    trace.append("observation", [4], parent=answer)
    trajectory = Trajectory(trace, 0)
    earned = turns_of(trajectory, 1.0, None)
    advantages, returns = gae(earned, values([0, 0]))
    assert advantages == returns == [1.0, 1.0]
    trained = trace.rows()[0].trained
    over_the_row = np.zeros(4)
    over_the_row[trained] = advantages
    assert over_the_row.tolist() == [0.0, 1.0, 1.0, 0.0]


def action_observation_action(observation):
    trace = Trace()
    action = sampled(trace, trace.append("prompt", [1], parent=None), [2, 3])
    if observation:
        action = trace.append("observation", observation, parent=action)
    sampled(trace, action, [5])
    return Trajectory(trace, 0)


def test_both_actions_around_an_observation_get_the_reward_at_the_end():
    trajectory = action_observation_action([9, 9, 9, 9])
    earned = turns_of(trajectory, 1.0, None)
    advantages, _ = gae(earned, values([0, 0, 0]))
    assert advantages == [1.0, 1.0, 1.0]
    [row] = trajectory.spread(np.asarray(advantages, np.float32))
    assert row.tolist() == [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_an_observation_is_skipped_as_if_it_had_been_removed(discount):
    """Pitfall 6: neither the recursion nor the discount sees what was not sampled."""
    estimates = values([0.3, -0.2, 0.6])
    found = [
        gae(
            turns_of(action_observation_action(observation), 1.0, None),
            estimates,
            gamma=discount,
            lam=0.8,
        )
        for observation in ([9] * 50, [])
    ]
    assert found[0] == found[1]


def test_a_trajectory_split_into_rows_gets_its_terminal_reward_once():
    trace = Trace()
    start = trace.append("prompt", [1, 2], parent=None)
    sampled(trace, start, [3, 4])
    edited = trace.append("prompt", [7], parent=None)
    sampled(trace, edited, [5, 6, 7])
    trajectory = Trajectory(trace, 0)
    assert len(trajectory.samples) == 2
    earned = turns_of(trajectory, 1.0, None)
    advantages, returns = gae(earned, values([0] * 5), lam=0.0)
    assert advantages == returns == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert gae(earned, values([0] * 5))[0] == [1.0] * 5


def test_turn_rewards_sit_at_the_last_token_of_their_turns():
    member = turns([2, 3, 1], [0.25, -1.0, 2.0])
    advantages, _ = gae(member, values([0] * 6), lam=0.0)
    assert advantages == [0.0, 0.25, 0.0, 0.0, -1.0, 2.0]
    to_go, _ = gae(member, values([0] * 6))
    assert to_go == pytest.approx([1.25, 1.25, 1.0, 1.0, 1.0, 2.0])


def test_a_turn_without_trained_tokens_leaves_its_reward_to_the_token_before():
    member = turns([0, 2, 0], [1.0, 2.0, 4.0])
    assert gae(member, values([0, 0]), lam=0.0)[0] == [1.0, 6.0]


def test_a_rollout_without_trained_tokens_has_no_advantages():
    assert gae(turns([], []), values([])) == ([], [])


def test_a_truncated_rollout_is_worth_its_last_state_where_it_is_bootstrapped():
    member, estimates = turns([2], [0.0]), values([0.0, 0.0], last=0.5)
    cut = gae(member, estimates, Outcome.TRUNCATED, bootstrap_truncated=True, gamma=0.5)
    assert cut == ([0.125, 0.25], [0.125, 0.25])


@pytest.mark.parametrize(
    ("outcome", "options"),
    [
        (Outcome.TRUNCATED, {}),
        (Outcome.COMPLETED, {"bootstrap_truncated": True}),
        (Outcome.POLICY_ERROR, {"bootstrap_truncated": True}),
    ],
)
def test_nothing_comes_after_the_end_of_any_other_rollout(outcome, options):
    member, estimates = turns([2], [1.0]), values([0.0, 0.0], last=100.0)
    assert gae(member, estimates, outcome, **options)[0] == [1.0, 1.0]


@pytest.mark.parametrize("seed", range(200))
def test_advantages_and_returns_equal_an_independent_reference(seed):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 12, int(rng.integers(1, 6)))
    earned = rng.normal(0, 1, len(lengths)).astype(np.float32)
    estimates = rng.normal(0, 1, lengths.sum()).astype(np.float32)
    gamma, lam = rng.uniform(0.5, 1, 2)
    outcome = Outcome.TRUNCATED if seed % 2 else Outcome.COMPLETED
    last = float(rng.normal())
    rewards = np.zeros(lengths.sum())
    rewards[np.cumsum(lengths) - 1] = earned
    expected = reference(
        rewards.tolist(), estimates.tolist(), last if seed % 2 else 0.0, gamma, lam
    )
    advantages, returns = gae(
        turns(lengths.tolist(), earned),
        values(estimates, last),
        outcome,
        gamma=gamma,
        lam=lam,
        bootstrap_truncated=True,
    )
    np.testing.assert_allclose(advantages, expected, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(returns, expected + estimates, rtol=1e-6, atol=1e-6)


def test_members_do_not_see_each_other():
    pair = [turns([2], [1.0]), turns([3], [0.0])]
    estimates = (values([0.1, 0.2]), values([0.3, 0.4, 0.5]))
    result = build(gamma=0.9)(group_of(pair), estimates)
    for at, (member, value) in enumerate(zip(pair, estimates, strict=True)):
        assert result.advantages[at].tolist() == gae(member, value, gamma=0.9)[0]
        assert result.advantages[at].dtype == result.returns[at].dtype == np.float32


def test_the_result_is_raw_and_whitening_is_left_to_the_core():
    assert build().whiten
    assert not build(whiten=False).whiten
    member, estimates = turns([2], [1.0]), values([0.0, 0.5])
    assert gae(member, estimates) == gae(member, estimates, whiten=False)


def test_thirty_two_thousand_tokens_take_no_second():
    rng = np.random.default_rng(0)
    member, estimates = turns([32768], [1.0]), values(rng.normal(size=32768))
    began = time.process_time()
    advantages, _ = gae(member, estimates, gamma=0.99, lam=0.95)
    assert time.process_time() - began < 1.0
    assert np.isfinite(advantages).all()


def test_a_run_without_a_value_model_is_told_what_to_add():
    with pytest.raises(ConfigError, match=r"this run has none(.|\n)*value: {loss: ppo/value}"):
        build()(group_of([turns([1], [1.0])]), None)


def test_as_many_values_as_trained_tokens_are_needed():
    with pytest.raises(RunFailed, match=r"rollout r0 .* shape \(2,\) for 3 trained tokens"):
        gae(turns([3], [1.0]), values([0, 0]))


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_reward_or_a_value_that_is_not_finite_names_the_rollout(bad):
    with pytest.raises(RunFailed, match="rollout r0 of task t has a reward that is not finite"):
        gae(turns([1], [bad]), values([0]))
    for broken in (values([bad]), values([0], last=bad)):
        with pytest.raises(RunFailed, match="values of rollout r0 of task t are not finite"):
            gae(turns([1], [1.0]), broken)
