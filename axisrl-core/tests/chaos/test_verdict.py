"""What counts as lost, doubled and healed."""

import json

import pytest

from axisrl.chaos.runner import Ending
from axisrl.chaos.verdict import Case, Facts, doubled, judge, lost_rollouts
from axisrl.runfolder import RunFolder
from axisrl.runtime.faults import Fault, LedgerEntry


def fault(step, target="engine"):
    return Fault(step=step, phase="train", edge="before", target=target)


def hit(step, target="engine", victim="engine 0"):
    return LedgerEntry(fault=fault(step, target), victim=victim)


def verdict(run, baseline, *ledger, ending=None, planned=None, exact=True):
    case = Case(
        seed=7,
        run_dir=run.path,
        baseline=baseline.path,
        plan=planned or [entry.fault for entry in ledger],
        ledger=ledger,
        ending=ending or Ending(seconds=20.0, starts=2),
        baseline_s=10.0,
    )
    return judge(case, Facts(group_size=2, exact=exact))


def lost(run, baseline):
    return lost_rollouts(RunFolder(run.path), RunFolder(baseline.path), 2)


def rows(run, step):
    return [row["summary"] for row in RunFolder(run.path).rollouts("step", step)]


def test_a_run_that_healed_and_is_the_same_is_good(run, baseline):
    found = verdict(run, baseline, hit(1), hit(2, "rollout", "rollout 1"))
    assert found.good
    assert (found.injected, found.healed) == ({"engine": 1, "worker": 1}, 2)
    assert (found.ratio, found.reward_change, found.starts) == (2.0, 0.0, 2)
    assert json.loads(json.dumps(found.to_dict()))["good"]


def test_a_fault_that_found_nobody_is_missed_and_no_harm(run, baseline):
    found = verdict(run, baseline, hit(1), hit(2, victim=""))
    assert (found.good, found.missed, found.healed) == (True, 1, 1)


def test_a_completed_run_that_did_not_reach_a_fault_is_not_good(run, baseline):
    found = verdict(run, baseline, hit(1), planned=[fault(1), fault(3)])
    assert found.reasons == ["faults not reached: 1"]


def test_of_a_run_that_failed_what_it_went_on_after_is_healed(run, baseline):
    run.metrics([run.line(step) for step in range(3)])
    ending = Ending(seconds=5.0, starts=1, error="exit code 1: budget")
    found = verdict(run, baseline, hit(1), hit(2), ending=ending)
    assert found.healed == 1
    assert found.reasons == ["ended: exit code 1: budget", "1 not healed"]


def test_a_run_that_hung_is_not_good_and_not_compared(run, baseline):
    found = verdict(run, baseline, ending=Ending(seconds=50.0, starts=1, hung=True))
    assert (found.good, found.differences) == (False, None)
    assert "hung" in found.reasons


def test_a_synchronous_run_must_be_the_same_bit_for_bit_and_another_need_not(run, baseline):
    run.checkpoint(3, weights=1.0, cursor=6)
    found = verdict(run, baseline)
    assert "not the same run: newest checkpoint" in found.reasons[0]
    assert verdict(run, baseline, exact=False).good


def test_a_rollout_that_was_started_and_is_nowhere_is_lost(run, baseline):
    assert lost(run, baseline) == 0
    run.rollouts(2, rows(run, 2)[1:])
    assert lost(run, baseline) == 1


def test_an_open_group_is_not_lost(run, baseline):
    run.checkpoint(3, cursor=8, open=[[6, 11], [7, 2]])
    assert lost(run, baseline) == 0
    run.checkpoint(3, cursor=8, open=[[7, 2]])
    assert lost(run, baseline) == 2


def test_a_rollout_that_failed_here_alone_is_lost(run, baseline):
    failed = rows(run, 1)
    failed[0]["reward"] = None
    run.rollouts(1, failed)
    assert lost(run, baseline) == 1
    baseline.rollouts(1, failed)
    assert lost(run, baseline) == 0


@pytest.mark.parametrize("advantage", [0.5, None])
def test_a_rollout_in_two_steps_is_doubled(run, advantage):
    run.rollouts(3, [*rows(run, 3), rows(run, 1)[0]], advantage)
    assert doubled(RunFolder(run.path)) == 1


def test_a_step_that_is_logged_twice_is_doubled(run):
    run.metrics([run.line(1), run.line(2), run.line(2), run.line(3)])
    assert doubled(RunFolder(run.path)) == 1
