import numpy as np
import pytest

from axisrl.config.schema import ModelConfig, TeacherConfig
from axisrl.errors import RunFailed
from axisrl.runtime.credit import LoadedGroup, Member, assign, turns_of
from axisrl.runtime.trajectory import Trajectory
from axisrl.trace import Trace
from axisrl.types import (
    AdvantageResult,
    GenerateResult,
    Outcome,
    RolloutGroup,
    RolloutSummary,
    SamplingParams,
    Values,
)


def trajectory(*turns, logprob=-1.0):
    """A chain of turns of so many tokens, an observation between them."""
    trace = Trace()
    leaf = trace.append("prompt", [1, 2], parent=None)
    for at, tokens in enumerate(turns):
        if at:
            leaf = trace.append("observation", [9], parent=leaf)
        drawn = GenerateResult(
            ids=np.full(tokens, 10 + at, np.int32),
            logprobs=np.full(tokens, logprob, np.float32),
            versions=np.zeros(tokens, np.int32),
            finish_reason="stop",
        )
        leaf = trace.append_sampled(drawn, parent=leaf, sampling=SamplingParams(), seed=0)
    return Trajectory(trace, 0)


def group(*members):
    """A group of (reward, turns) pairs, fetched."""
    summaries = tuple(
        RolloutSummary(
            id=str(at), task_id="t", group=0, member=at, outcome=Outcome.COMPLETED, reward=reward
        )
        for at, (reward, _) in enumerate(members)
    )
    loaded = []
    for at, (reward, turns) in enumerate(members):
        one = trajectory(*turns)
        loaded.append(Member(id=str(at), trajectory=one, turns=turns_of(one, reward, None)))
    whole = RolloutGroup(
        group=0, task_id="t", members=summaries, turns=tuple(m.turns for m in loaded)
    )
    return LoadedGroup(group=whole, members=tuple(loaded))


class Reward:
    """The reward itself."""

    whiten = False

    def __call__(self, group, values):
        self.seen = group, values
        return AdvantageResult(advantages=tuple(group.rewards))


def teacher(alpha=1.0, clip=10.0):
    return TeacherConfig(model=ModelConfig(name="t"), alpha=alpha, clip=clip)


def test_without_turn_rewards_all_of_it_is_earned_at_the_last_turn():
    turns = turns_of(trajectory(2, 1, 3), 1.5, None)
    assert turns.tokens == (2, 1, 3)
    assert turns.rewards.tolist() == [0, 0, 1.5]


def test_what_turn_rewards_leave_is_earned_at_the_end():
    turns = turns_of(trajectory(2, 1), 1.0, np.asarray([0.25, 0.25], np.float32))
    assert turns.rewards.tolist() == [0.25, 0.75]


def test_turn_rewards_of_another_number_of_turns_are_an_error():
    with pytest.raises(RunFailed, match="gave 3 turns of a rollout that has 2"):
        turns_of(trajectory(2, 1), 1.0, np.zeros(3, np.float32))


def test_the_advantage_sees_turns_and_no_values_where_there_is_no_value_model():
    loaded, advantage = group((1.0, (2, 1)), (0.0, (1,))), Reward()
    assign([loaded], advantage, None)
    seen, values = advantage.seen
    assert values is None
    assert [turns.tokens for turns in seen.turns] == [(2, 1), (1,)]
    assert loaded.members[0].advantages.tolist() == [1, 1, 1]


def test_the_advantage_sees_the_values_of_every_member():
    loaded, advantage = group((1.0, (1,)), (0.0, (1,))), Reward()
    for member in loaded.members:
        member.values = Values(tokens=np.zeros(1, np.float32), last=0.5)
    assign([loaded], advantage, None)
    assert [value.last for value in advantage.seen[1]] == [0.5, 0.5]


def test_whitening_covers_the_trained_tokens_of_the_whole_update():
    groups = [group((1.0, (3,)), (0.0, (1,))), group((4.0, (2,)), (-2.0, (2,)))]
    advantage = Reward()
    advantage.whiten = True
    assign(groups, advantage, None)
    flat = np.concatenate([m.advantages for g in groups for m in g.members])
    assert flat.mean() == pytest.approx(0, abs=1e-6)
    assert flat.std() == pytest.approx(1, abs=1e-5)
    assert flat[0] == pytest.approx((1 - 7 / 8) / np.std([1, 1, 1, 0, 4, 4, -2, -2]), abs=1e-5)


def test_whitening_equal_advantages_gives_zero():
    loaded, advantage = group((0.2, (3,)), (0.2, (2,))), Reward()
    advantage.whiten = True
    assign([loaded], advantage, None)
    assert all(np.abs(m.advantages).max() < 1e-5 for m in loaded.members)


def test_a_teacher_alone_replaces_the_advantage():
    """a=1, A=[1,-1], student [-1,-3], teacher [-2,-2] -> [-1, 1]."""
    loaded = group((1.0, (1,)), (-1.0, (1,)))
    for member, student in zip(loaded.members, (-1.0, -3.0), strict=True):
        member.trajectory = trajectory(1, logprob=student)
        member.scores = {"teacher_logprobs": np.asarray([-2.0], np.float32)}
    assign([loaded], Reward(), teacher())
    assert [m.advantages.item() for m in loaded.members] == [-1, 1]


def test_a_teacher_is_blended_and_clipped():
    loaded = group((1.0, (1,)))
    loaded.members[0].scores = {"teacher_logprobs": np.asarray([-9.0], np.float32)}
    assign([loaded], Reward(), teacher(alpha=0.25, clip=2.0))
    assert loaded.members[0].advantages.item() == pytest.approx(0.75 - 0.25 * 2.0)


def test_fewer_advantages_than_members_end_the_run():
    class Short(Reward):
        def __call__(self, group, values):
            return AdvantageResult(advantages=(np.float32(1.0),))

    with pytest.raises(RunFailed, match="gave 1 entries for the 2 members of group 0"):
        assign([group((1.0, (3,)), (0.0, (1,)))], Short(), None)


@pytest.mark.parametrize("entry", [np.zeros(2, np.float32), np.float32("nan")])
def test_an_advantage_of_a_wrong_shape_or_without_a_value_ends_the_run(entry):
    class Wrong(Reward):
        def __call__(self, group, values):
            return AdvantageResult(advantages=(np.asarray(entry),))

    with pytest.raises(RunFailed, match="advantages of rollout 0"):
        assign([group((1.0, (3,)))], Wrong(), None)
