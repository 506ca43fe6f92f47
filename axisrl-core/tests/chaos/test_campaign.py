"""The bound of a run with faults, and which runs may serve as the one without."""

import os

import pytest

from axisrl.chaos.campaign import Baseline, Campaign, known_baseline
from axisrl.chaos.plan import Chaos, phases_of
from axisrl.chaos.runner import Command
from axisrl.chaos.verdict import Facts
from axisrl.errors import UsageError


def campaign(tmp_path, every, redo):
    return Campaign(
        command=Command(words=["r"], options=[], environ=os.environ),
        chaos=Chaos(["driver"], every, 3),
        facts=Facts(group_size=2, exact=True),
        folder=tmp_path,
        redo=redo,
    )


def test_a_bound_allows_a_start_and_the_lost_updates_for_each_fault(tmp_path, baseline):
    known = Baseline(baseline.path, 12.75, phases_of(baseline.path))
    # 2.75 s in phases, so 10 s to start; 11/12 s an update; 10 s to notice.
    step = 2.75 / 3
    assert campaign(tmp_path, 1, 1).bound(known) == pytest.approx(3 * (12.75 + 3 * (20 + step)))
    assert campaign(tmp_path, 2, 3).bound(known) == pytest.approx(3 * (12.75 + 2 * (20 + 2.75)))


def test_a_bound_grows_with_the_runs_that_share_a_core_and_never_shrinks(tmp_path, baseline):
    known = Baseline(baseline.path, 12.75, phases_of(baseline.path))
    alone = campaign(tmp_path, 1, 1).bound(known)
    assert campaign(tmp_path, 1, 1).bound(known, 0.25) == alone
    assert campaign(tmp_path, 1, 1).bound(known, 2.0) == 2 * alone


def test_a_run_of_the_same_settings_under_another_name_is_a_baseline(baseline):
    found = known_baseline(baseline.path, {"name": "", "seed": 1}, {"name": "b", "seed": 1})
    assert (found.seconds, len(found.phases)) == (10.0, 9)


def test_a_run_of_other_settings_is_none(baseline):
    with pytest.raises(UsageError, match="other settings: seed, train"):
        known_baseline(baseline.path, {"seed": 1, "train": {"updates": 1}}, {"seed": 2})


def test_a_run_that_was_stopped_is_none(baseline):
    (baseline.path / "manifest.json").write_text('{"state": "failed"}')
    with pytest.raises(UsageError, match="completed without a stop"):
        known_baseline(baseline.path, {}, {})


def test_every_seed_is_played_and_told_once(tmp_path):
    told = []
    campaign(tmp_path, 1, 1).play_all([3, 4, 5], lambda seed: seed * 10, 2, told.append)
    assert sorted(told) == [30, 40, 50]


def test_an_error_of_one_run_ends_the_campaign(tmp_path):
    def one(seed):
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        campaign(tmp_path, 1, 1).play_all([1, 2], one, 1, print)
