"""The rank split: two processes catch what one cannot, and never keep the caller waiting."""

import importlib
import multiprocessing
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="losses are torch")

from axisrl.testing import CheckFailed, CheckSkipped, LossCase, Subject, ranks
from axisrl.testing import loss as checks


@pytest.fixture
def split(tmp_path, monkeypatch):
    """Runs the rank split on a loss of ranked_losses.py."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    build = importlib.import_module("ranked_losses").build

    def run(name, *, builder=build, **case):
        case = LossCase(use=f"toy/{name}", **case)
        checks.ranks_change_nothing(Subject(case=case, work_dir=tmp_path, builder=builder))

    return run


def workers():
    return {child.pid for child in multiprocessing.active_children()}


def test_a_good_loss_is_the_same_on_two_ranks(split):
    split("Ratio")


def test_options_reach_the_other_processes(split):
    split("Ratio", options={"scale": 3.0})


def test_a_loss_over_trajectories_has_them_whole_on_a_rank(split):
    split("OfTrajectories")


def test_a_rank_local_mean_is_caught(split):
    """Pitfall 8: ranks change nothing."""
    with pytest.raises(CheckFailed, match=r"two ranks: the loss: off by \d"):
        split("RankLocalMean")


def test_a_loss_that_expects_the_ranks_to_be_averaged_is_caught(split):
    with pytest.raises(CheckFailed, match=r"two ranks: the loss: off by \d"):
        split("ScalesByTheWorld")


def test_one_pair_of_processes_serves_every_case(split):
    split("Ratio")
    before = workers()
    split("Ratio", label="again")
    assert len(before) >= ranks.RANKS
    assert workers() == before


def test_a_rank_that_never_answers_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    build = importlib.import_module("ranked_losses").build
    case = LossCase(use="toy/NeverEnds")
    subject = Subject(case=case, work_dir=tmp_path, builder=build)
    job = ranks.job_of(subject, whole_trajectories=False)
    with pytest.raises(CheckFailed, match=r"rank 0 has not answered after 0\.5 s"):
        ranks.sum_over_ranks(job, limit_s=0.5)


def test_what_one_rank_raises_is_told_and_the_next_case_is_tried_afresh(split):
    with pytest.raises(CheckFailed, match="two ranks: rank 1 raised ValueError: no such token"):
        split("RaisesOnRankOne")
    split("Ratio")


def test_a_rank_that_dies_is_named(split):
    with pytest.raises(CheckFailed, match=r"two ranks: .*rank (0 raised|1 died)"):
        split("DiesOnRankOne")


def test_a_loss_made_here_is_skipped_with_a_reason(split):
    with pytest.raises(CheckSkipped, match="cannot be rebuilt in another process"):
        split(
            "Ratio", builder=lambda ref, context: importlib.import_module("ranked_losses").Ratio()
        )


def test_services_cannot_reach_another_process(split):
    with pytest.raises(CheckSkipped, match="services"):
        split("Ratio", services={"model": object()})


@pytest.mark.parametrize("whole", [True, False])
def test_trajectories_have_two_rows_and_are_dealt_out_unless_they_are_kept_whole(whole):
    batches = ranks.batches_of_ranks(whole_trajectories=whole)
    seen = [{row.trajectory for part in rank for row in part} for rank in batches]
    tokens = [sum(int(row.mask.sum()) for part in rank for row in part) for rank in batches]
    assert sum(len(part) for rank in batches for part in rank) == 12
    assert seen[0].isdisjoint(seen[1]) if whole else seen[0] == seen[1]
    assert tokens[0] != tokens[1]
