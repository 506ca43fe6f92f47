"""A loss that nobody can make good in place: the run goes back to its newest checkpoint, by itself,
and ends as if nothing had been lost."""

import logging

import numpy as np
import pytest

from axisrl.errors import ActorGone, RunFailed, StoreLost
from axisrl.runtime.checkpoint import latest
from axisrl.runtime.recorder import RecorderActor
from axisrl.runtime.trainer import LearnerActor


def untimed(metrics):
    theirs = ("time", "system/", "recovery/")
    return [
        {k: v for k, v in line.items() if not k.startswith(theirs) and not k.endswith("_per_s")}
        for line in metrics
    ]


def final_weights(run_dir):
    return np.load(latest(run_dir) / "trainer" / "weights.npy")


@pytest.fixture
def failing(monkeypatch):
    """``failing(actor, method, calls, error)``: these calls of it, counted from 1, fail."""

    def failing(actor, method, calls, error):
        asked, whole = [0], getattr(actor, method)

        async def once(self, *args):
            asked[0] += 1
            if asked[0] in calls:
                raise error
            return await whole(self, *args)

        monkeypatch.setattr(actor, method, once)

    return failing


LOSSES = [
    (LearnerActor, "step", {2}, ActorGone("the trainer 0 actor is gone")),
    (LearnerActor, "load_window", {3}, StoreLost("handle 7 is not in core/shm")),
    (LearnerActor, "step", {1, 3}, ActorGone("the trainer 0 actor is gone")),
    (RecorderActor, "write", {4}, ActorGone("the recorder 0 actor is gone")),
    (LearnerActor, "save", {1, 2}, ActorGone("the trainer 0 actor is gone")),
]


@pytest.mark.parametrize("every", [0, 1, 2])
@pytest.mark.parametrize("loss", LOSSES)
def test_a_run_that_goes_back_is_the_run_that_lost_nothing(stage, tmp_path, failing, loss, every):
    options = (f"checkpoint.every={every}",)
    stage(*options)
    whole, weights = untimed(stage.metrics), final_weights(stage.dir)
    rollouts = sorted(path.name for path in (stage.dir / "rollouts").iterdir())
    failing(*loss)
    stage.dir = tmp_path / "lost"
    assert stage(*options).outcome == "completed"
    assert untimed(stage.metrics) == whole
    assert np.array_equal(final_weights(stage.dir), weights)
    assert sorted(path.name for path in (stage.dir / "rollouts").iterdir()) == rollouts
    assert stage.manifest["state"] == "completed"


def test_the_log_says_where_the_run_goes_back_to_and_why(stage, failing, caplog):
    failing(LearnerActor, "step", {1, 4}, ActorGone("the trainer 0 actor is gone"))
    failing(LearnerActor, "stop", {1, 2}, ActorGone("the trainer 0 actor is gone"))
    with caplog.at_level(logging.WARNING):
        stage("checkpoint.every=1")
    lines = [line for line in caplog.messages if "goes back" in line]
    assert lines == [
        "the run goes back to its beginning: the trainer 0 actor is gone",
        "the run goes back to step-000002: the trainer 0 actor is gone",
    ]
    assert not [line for line in caplog.messages if "did not close" in line]
    assert stage.metrics[-1]["recovery/rewinds"] == 2


def test_losses_over_the_budget_end_the_run_with_the_loss_named(stage, failing):
    failing(LearnerActor, "step", set(range(1, 100)), ActorGone("the trainer 0 actor is gone"))
    with pytest.raises(RunFailed, match=r"trainer 0 actor is gone; placement\.restarts 2 is used"):
        stage("placement.restarts=2")
    assert stage.manifest["state"] == "failed"


def test_a_run_that_was_never_up_is_not_tried_again(stage, monkeypatch):
    started = []

    def start(self, total_steps):
        started.append(total_steps)
        raise ActorGone("out of memory")

    monkeypatch.setattr(LearnerActor, "start", start)
    with pytest.raises(ActorGone, match="out of memory"):
        stage()
    assert len(started) == 1
