"""A whole run whose tasks are drawn by how hard they are."""

import pytest

from axisrl.errors import RunFailed


def played(stage):
    """Task and reward of every training rollout, by file."""
    files = sorted((stage.dir / "rollouts").glob("step-*.jsonl"))
    return {
        path.stem: [
            (row["summary"]["task_id"], row["summary"]["reward"])
            for row in stage.rollouts(path.stem)
        ]
        for path in files
    }


@pytest.mark.parametrize("strategy", ["no_easy", "low_success", "intermediate"])
def test_a_killed_run_draws_what_the_uninterrupted_one_would_have(stage, tmp_path, strategy):
    """Pitfall 20: the sampler's knowledge is part of every checkpoint."""
    settings = (f"sampler={strategy}", "train.updates=5", "eval=null")
    stage(*settings)
    whole = played(stage)
    assert len(whole) == 5
    for fatal in (2, 4):
        stage.dir = tmp_path / f"killed-{fatal}"
        with pytest.raises(RunFailed, match="scripted failure"):
            stage(*settings, f"trainer.fail_at_step={fatal}")
        stage(*settings, resume=True)
        assert played(stage) == whole


def test_what_is_known_of_the_tasks_is_logged(stage):
    stage("sampler=low_success", "train.updates=3")
    seen = [line["sampler/seen_frac"] for line in stage.metrics if "sampler/seen_frac" in line]
    assert len(seen) == 3
    assert seen[0] == pytest.approx(2 / 6)  # a window is two groups of six tasks
    assert seen == sorted(seen)
    assert 0 <= stage.metrics[-1]["sampler/success_mean"] <= 1
