"""grpo/turn: turns compared with the same turn of the others, and what stays the group's."""

import numpy as np
import pytest

from axisrl.errors import ConfigError, RunFailed
from axisrl_grpo.advantages.group import GroupAdvantage
from axisrl_grpo.advantages.turn import TurnAdvantage
from axisrl_grpo.config import GroupAdvantageConfig, TurnAdvantageConfig

HALF = 0.5**0.5


@pytest.fixture
def advantages(kit):
    """Of members given as (tokens, reward) a turn; rewards sum to the rollout's."""

    def run(members, **options):
        rewards = [sum(reward for _, reward in turns) for turns in members]
        advantage = TurnAdvantage(TurnAdvantageConfig(**options), kit.context)
        return [a.tolist() for a in advantage(kit.group_of(rewards, members), None).advantages]

    return run


def test_a_turn_adds_its_own_advantage_to_the_rollout_s(advantages):
    good, bad = advantages([[(2, 1.0), (1, 0.0)], [(1, 0.0), (3, 0.0)]])
    assert good == pytest.approx([2 * HALF, 2 * HALF, HALF], abs=1e-5)
    assert bad == pytest.approx([-2 * HALF, -HALF, -HALF, -HALF], abs=1e-5)


def test_the_coefficient_scales_the_turn_s_part_alone(advantages):
    good, _ = advantages([[(1, 1.0), (1, 0.0)], [(1, 0.0), (1, 0.0)]], coef=0.5)
    assert good == pytest.approx([1.5 * HALF, HALF], abs=1e-5)


def test_a_good_turn_of_a_lost_rollout_stands_out_from_its_other_turns(advantages):
    lost = advantages([[(1, 0.5), (1, 0.0)], [(1, 0.0), (1, 1.0)]])[0]
    assert lost == pytest.approx([0.0, -HALF], abs=1e-5)


def test_without_rewards_for_turns_it_is_exactly_the_group_advantage(advantages, kit):
    members = [[(2, 0.0), (1, 1.0)], [(1, 0.0), (1, 0.0), (2, 0.25)], [(3, 0.0)]]
    group = GroupAdvantage(GroupAdvantageConfig(), kit.context)
    wanted = group(kit.group_of([1.0, 0.25, 0.0]), None).advantages
    for got, want in zip(advantages(members), wanted, strict=True):
        assert set(got) == {float(want)}


def test_a_last_turn_is_not_compared_with_a_turn_before_the_last(advantages):
    members = [[(1, 0.0), (1, 1.0)], *[[(1, 0.0), (1, 0.5), (1, 0.5)]] * 2]
    assert advantages(members) == [[0.0] * 2, [0.0] * 3, [0.0] * 3]


def test_a_turn_that_only_one_rollout_took_before_its_last_adds_nothing(advantages):
    one, long = advantages([[(1, 0.0)], [(1, 0.7), (1, 0.3)]])
    assert one == pytest.approx([-HALF], abs=1e-5)
    assert long == pytest.approx([HALF, HALF], abs=1e-5)


@pytest.mark.parametrize("reward", [0.2, 0.35, 0.1])
def test_equal_float_rewards_give_exactly_zero(advantages, reward):
    for got in advantages([[(2, reward), (1, reward)]] * 8):
        assert got == [0.0] * 3


def test_one_odd_turn_among_equals_stays_bounded(advantages):
    members = [[(1, 0.35), (1, 0.0)]] * 7 + [[(1, 0.0), (1, 0.0)]]
    assert max(abs(value) for got in advantages(members) for value in got) < 10


def test_there_is_one_float32_entry_a_trained_token(kit):
    group = kit.group_of([1.0, 0.0], [[(2, 0.5), (0, 0.0), (3, 0.5)], [(1, 0.0)]])
    result = TurnAdvantage(TurnAdvantageConfig(), kit.context)(group, None)
    assert [(a.shape, a.dtype) for a in result.advantages] == [((5,), np.float32), ((1,), "f4")]


def test_a_group_that_does_not_tell_of_its_turns_is_an_error(kit):
    advantage = TurnAdvantage(TurnAdvantageConfig(), kit.context)
    with pytest.raises(RunFailed, match=r"2 members and tells of the turns of 0(.|\n)*grpo/group"):
        advantage(kit.group_of([0.0, 1.0]), None)


def test_a_turn_reward_that_is_not_finite_is_an_error_naming_the_rollout(kit):
    advantage = TurnAdvantage(TurnAdvantageConfig(), kit.context)
    group = kit.group_of([0.0, 1.0], [[(1, 0.0)], [(1, float("nan"))]])
    with pytest.raises(RunFailed, match="rollout r1 of task t has turn rewards"):
        advantage(group, None)


def test_a_group_of_one_is_a_config_error(kit):
    advantage = TurnAdvantage(TurnAdvantageConfig(), kit.context)
    with pytest.raises(ConfigError, match="grpo/turn compares"):
        advantage(kit.group_of([0.0], [[(1, 0.0)]]), None)


@pytest.mark.parametrize("seed", range(20))
def test_advantages_equal_an_independent_computation(advantages, seed):
    rng = np.random.default_rng(seed)
    members = [
        [
            (int(rng.integers(0, 4)), float(np.float32(rng.normal())))
            for _ in range(rng.integers(1, 5))
        ]
        for _ in range(int(rng.integers(2, 7)))
    ]

    def z(own, rewards):
        mean = sum(rewards) / len(rewards)
        spread = (sum((r - mean) ** 2 for r in rewards) / max(len(rewards) - 1, 1)) ** 0.5
        return min(max((own - mean) / (spread + 1e-6), -5.0), 5.0)

    totals = [sum(reward for _, reward in turns) for turns in members]
    for turns, total, got in zip(members, totals, advantages(members, coef=0.3), strict=True):
        wanted = []
        for k, (tokens, reward) in enumerate(turns):
            same = [other[k][1] for other in members if k < len(other) - 1]
            part = z(reward, same) if k < len(turns) - 1 else 0.0
            wanted += [z(total, totals) + 0.3 * part] * tokens
        assert got == pytest.approx(wanted, abs=1e-4)
