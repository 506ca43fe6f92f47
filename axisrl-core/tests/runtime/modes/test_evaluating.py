"""mode: eval on the stage: one evaluation, and nothing else."""

import pytest

from axisrl.errors import ConfigError

EVAL = ("mode=eval", "dataset=null", "advantage=null", "loss=null", "trainer=null")


def test_the_weights_are_evaluated_once_at_step_0_without_a_trainer(stage):
    result = stage(*EVAL, "eval.samples=2")
    assert (result.outcome, result.step) == ("completed", 0)
    (line,) = stage.metrics
    assert (line["step"], line["eval/accuracy"]) == (0, 1)  # greedy is always right on this stage
    assert 0 <= line["eval/pass@1_low"] <= line["eval/pass@2"] <= 1
    assert [path.name for path in (stage.dir / "rollouts").iterdir()] == ["eval-000000.jsonl"]
    assert len(stage.rollouts("eval-000000")) == 3 * (1 + 2)


def test_the_accuracy_is_reported_with_its_interval(stage):
    report = stage(*EVAL).report
    low = stage.metrics[0]["eval/accuracy_low"]
    assert report[0] == f"eval/accuracy 1.0000, 95 % interval [{low:.4f}, 1.0000]"
    assert "eval/failed_frac 0.0000" in report


def test_a_resumed_evaluation_that_is_done_is_not_made_again(stage):
    stage(*EVAL)
    before = (stage.dir / "rollouts" / "eval-000000.jsonl").stat().st_mtime_ns
    assert stage(*EVAL, resume=True).outcome == "completed"
    assert (stage.dir / "rollouts" / "eval-000000.jsonl").stat().st_mtime_ns == before
    assert len(stage.metrics) == 1


def test_an_evaluation_of_nothing_is_refused(stage):
    with pytest.raises(ConfigError, match="eval is required in mode eval: set eval"):
        stage("mode=eval", "eval=null")
    assert not stage.dir.exists()
