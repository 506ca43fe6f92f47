import asyncio
import json

import pytest

from axisrl.config.schema import (
    ModelConfig,
    OfflineConfig,
    RolloutConfig,
    RunConfig,
    TrainConfig,
    Use,
)
from axisrl.errors import ConfigError, RunFailed
from axisrl.runtime.replay import ReplaySource, index_groups
from axisrl.types import Outcome, RolloutSummary

ANY = Use(use="x")


class Folder:
    """A replayer of groups whose members have the rewards given."""

    def __init__(self, *groups):
        self.groups, self.asked = groups, []

    async def call(self, method, *args):
        if method == "count":
            return len(self.groups)
        self.asked += [number % len(self.groups) for number in args[0]]
        return [self._members(number % len(self.groups)) for number in args[0]]

    def _members(self, number):
        return [
            RolloutSummary(
                id=f"{number}-{member}",
                task_id=f"t{number}",
                group=number,
                member=member,
                outcome=Outcome.COMPLETED if reward is not None else Outcome.ENV_ERROR,
                reward=reward,
            )
            for member, reward in enumerate(self.groups[number])
        ]


def source(folder, *, batch=4, zero_std="keep"):
    config = RunConfig(
        mode="train_offline",
        model=ModelConfig(name="m"),
        trainer=ANY,
        loss=ANY,
        advantage=ANY,
        offline=OfflineConfig(rollouts="run"),
        rollout=RolloutConfig(group_size=2),
        train=TrainConfig(batch_size=batch, zero_std_groups=zero_std),
    )
    return ReplaySource(config, folder)


def collected(one):
    return [group.group for group in asyncio.run(one.collect()).groups]


def test_windows_follow_the_folder_over_and_over():
    one = source(Folder((0, 1), (0, 1), (0, 1)))
    assert [collected(one) for _ in range(3)] == [[0, 1], [2, 0], [1, 2]]


def test_dropped_groups_are_counted_and_replaced_by_later_ones():
    one = source(Folder((1, 1), (0, 1), (None, 1), (1, 0)), zero_std="drop")
    window = asyncio.run(one.collect())
    assert [group.group for group in window.groups] == [1, 3]
    assert dict(window.dropped) == {"zero_std": 1, "too_few_usable": 1}
    assert len(window.played) == 8


def test_a_resumed_source_goes_on_where_the_killed_one_would_have():
    folder = Folder((0, 1), (0, 1), (0, 1))
    first = source(folder)
    collected(first)
    second = source(folder)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert collected(second) == collected(first)


@pytest.mark.parametrize("groups", [((0, 1),), ((1, 1), (0, 1))])
def test_a_folder_that_fills_no_window_ends_the_run_and_no_group_is_used_twice(groups):
    folder = Folder(*groups)
    with pytest.raises(RunFailed, match=r"saved groups gave 1 of the 2 usable ones of a window"):
        asyncio.run(source(folder, zero_std="drop").collect())
    assert folder.asked == list(range(len(groups)))


def test_groups_are_those_of_the_lines_in_the_order_they_were_trained_on(tmp_path):
    folder = tmp_path / "rollouts"
    folder.mkdir()
    for name, numbers in (("step-000002", (5,)), ("step-000001", (3, 3, 4)), ("eval-000001", (9,))):
        lines = [json.dumps({"summary": {"group": number}}) for number in numbers]
        (folder / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines))
    found = index_groups(tmp_path)
    assert [(g.rollouts.stem, len(g.lines)) for g in found] == [
        ("step-000001", 2),
        ("step-000001", 1),
        ("step-000002", 1),
    ]


def test_a_line_that_is_no_rollout_is_named(tmp_path):
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step-000001.jsonl").write_text("{}\n")
    with pytest.raises(ConfigError, match=r"step-000001.jsonl holds a line that is no rollout"):
        index_groups(tmp_path)
