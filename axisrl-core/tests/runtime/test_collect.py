import asyncio

import pytest

from axisrl.config.schema import ModelConfig, RolloutConfig, RunConfig, TrainConfig, Use
from axisrl.errors import RunFailed
from axisrl.runtime.collect import Collector, NoWindows, Window, window_metrics
from axisrl.runtime.sampler import TaskSampler
from axisrl.types import Outcome, RolloutGroup, RolloutSummary, Task

ANY = Use(use="x")


class Tasks:
    def __len__(self):
        return 100

    def __getitem__(self, index):
        return Task(id=str(index), data={})


class Pool:
    """``rewards(group, member)``: a number, or None for an engine failure."""

    def __init__(self, rewards):
        self.rewards = rewards

    async def play(self, stream, plans, sampling):
        assert stream == "train"
        return [[self.one(plan, member) for member in range(plan.size)] for plan in plans]

    def one(self, plan, member):
        reward = self.rewards(plan.number, member)
        return RolloutSummary(
            id=f"{plan.number}-{member}",
            task_id=plan.task.id,
            group=plan.number,
            member=member,
            outcome=Outcome.ENGINE_ERROR if reward is None else Outcome.COMPLETED,
            reward=reward,
            parts={} if reward is None else {"math": reward},
            sampled_tokens=member + 1,
            error="" if reward is not None else "engine: gone",
        )


def collector(rewards, *, zero_std="keep", updates=1, limit=0.5):
    config = RunConfig(
        model=ModelConfig(name="m"),
        dataset=ANY,
        env=ANY,
        advantage=ANY,
        loss=ANY,
        engine=ANY,
        trainer=ANY,
        rollout=RolloutConfig(group_size=4, max_failed_fraction=limit),
        train=TrainConfig(
            updates=4, batch_size=8, updates_per_sync=updates, zero_std_groups=zero_std
        ),
    )
    return Collector(config, Pool(rewards), TaskSampler(Tasks(), 0, config.sampler))


def collect(rewards, **options):
    return asyncio.run(collector(rewards, **options).collect())


def test_a_window_holds_the_groups_of_its_updates_in_dispatch_order():
    window = collect(lambda group, member: float(member), updates=2)
    assert [g.group for g in window.groups] == [0, 1, 2, 3]
    assert [[g.group for g in part] for part in window.split(2)] == [[0, 1], [2, 3]]


def test_a_failed_rollout_leaves_its_group_and_the_siblings_survive():
    """Pitfall 11."""
    window = collect(lambda group, member: None if (group, member) == (0, 2) else float(member))
    members = window.groups[0].members
    assert [one.member for one in members] == [0, 1, 3]


def test_reward_zero_is_a_reward():
    """Pitfall 12."""
    window = collect(lambda group, member: 0.0 if member else 1.0)
    assert len(window.groups[0].members) == 4


def test_a_group_with_too_few_usable_members_is_dropped_counted_and_replaced():
    window = collect(lambda group, member: None if group == 0 and member else float(member))
    assert [g.group for g in window.groups] == [1, 2]
    assert dict(window.dropped) == {"too_few_usable": 1}
    assert len(window.played) == 12
    assert window_metrics(window).flush()["rollout/dropped_too_few_usable"] == 1


def test_groups_without_variance_are_kept_and_counted_by_default():
    """Pitfall 10."""
    window = collect(lambda group, member: 1.0 if group == 0 else float(member))
    assert len(window.groups) == 2
    assert window_metrics(window).flush()["rollout/zero_std_frac"] == 0.5


def test_groups_without_variance_can_be_dropped():
    window = collect(lambda group, member: 1.0 if group < 3 else float(member), zero_std="drop")
    assert [g.group for g in window.groups] == [3, 4]
    assert window.dropped["zero_std"] == 3


def test_the_share_of_groups_without_variance_does_not_depend_on_what_is_done_with_them():
    """Pitfall 10: the same denominator under each policy."""

    def share(**options):
        window = collect(lambda group, member: 1.0 if group % 2 else float(member), **options)
        return window_metrics(window).flush()["rollout/zero_std_frac"]

    assert share(zero_std="keep") == 1 / 2
    assert share(zero_std="drop") == 1 / 3  # groups 0, 1 and 2 were needed for two


def test_a_window_without_usable_groups_of_no_variance_says_zero():
    window = collect(lambda group, member: float(member))
    assert window_metrics(window).flush()["rollout/zero_std_frac"] == 0


def test_groups_of_one_have_no_share_without_variance():
    alone = RolloutSummary(
        id="a", task_id="t", group=0, member=0, outcome=Outcome.COMPLETED, reward=1.0
    )
    window = Window(groups=[RolloutGroup(group=0, task_id="t", members=(alone,))], played=[alone])
    assert "rollout/zero_std_frac" not in window_metrics(window).flush()


def test_groups_dispatched_equal_kept_plus_dropped():
    """Pitfall 18."""
    it = collector(lambda group, member: 1.0 if group % 3 else float(member), zero_std="drop")
    for _ in range(3):
        before = it.state_dict()["cursor"]
        window = asyncio.run(it.collect())
        assert it.state_dict()["cursor"] - before == len(window.groups) + window.dropped.total()


def test_a_window_that_never_fills_ends_the_run_with_the_reasons():
    with pytest.raises(RunFailed, match=r"0 of 2 usable groups; dropped: {'zero_std': 40}"):
        collect(lambda group, member: 1.0, zero_std="drop")


def test_too_many_failures_end_the_run_with_a_table_of_causes():
    with pytest.raises(RunFailed, match=r"(?s)6 of 8 rollouts failed.*6 x engine_error: engine: g"):
        collect(lambda group, member: None if member else 1.0)


def test_metrics_speak_of_usable_rollouts_and_shares_of_all():
    window = collect(lambda group, member: None if (group, member) == (0, 3) else float(member))
    values = window_metrics(window).flush()
    assert values["rollout/failed_frac"] == 1 / 8
    assert values["rollout/engine_error"] == 1
    assert values["reward/mean"] == pytest.approx((0 + 1 + 2 + 0 + 1 + 2 + 3) / 7)
    assert (values["reward/min"], values["reward/max"]) == (0, 3)
    assert values["reward/part/math"] == values["reward/mean"]
    assert values["rollout/tokens_max"] == 4


def test_a_run_without_training_tasks_has_no_window():
    source = NoWindows()
    source.load_state_dict(source.state_dict())
    with pytest.raises(RunFailed, match="no window"):
        asyncio.run(source.collect())
