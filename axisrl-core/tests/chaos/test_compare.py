"""Two folders are the same run, whatever clocks said; or it is said what differs."""

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from axisrl.chaos.compare import differences
from axisrl.runfolder import RunFolder


def told(run, baseline):
    return differences(run.path, baseline.path)


def test_what_clocks_decide_is_no_difference(run, baseline):
    lines = RunFolder(run.path).metrics
    slower = [
        line
        | {"time": 5, "recovery/replaced_engine": 1.0, "time/train_s": 9, "train/tokens_per_s": 1}
        for line in lines
    ]
    run.metrics(slower)
    rows = RunFolder(run.path).rollouts("step", 1)
    run.rollouts(1, [row["summary"] | {"seconds": 8} for row in rows])
    assert told(run, baseline) == []


def test_a_metric_that_differs_is_named_with_its_step(run, baseline):
    lines = RunFolder(run.path).metrics
    lines[2]["reward/mean"] = 0.7
    run.metrics(lines)
    assert told(run, baseline) == ["metrics of step 2 (reward/mean) differs"]


def test_a_step_that_is_missing_is_named(run, baseline):
    run.metrics(RunFolder(run.path).metrics[:-1])
    assert told(run, baseline) == ["metrics of step 3 is in one of them only"]


def test_a_rollout_that_differs_is_named(run, baseline):
    rows = [row["summary"] for row in RunFolder(run.path).rollouts("step", 2)]
    rows[1]["reward"] = 0.0
    run.rollouts(2, rows)
    assert told(run, baseline) == ["rollout step-000002 train-000002-001 (1) differs"]


def test_one_bit_of_a_model_is_a_difference(run, baseline):
    run.checkpoint(3, weights=np.float32(1e-45), cursor=6)
    assert told(run, baseline) == ["newest checkpoint: trainer/model.safetensors w differs"]


@pytest.mark.parametrize("nodes", ["[]", "[1]"])
def test_a_trace_is_compared_by_what_is_in_it(run, baseline, nodes):
    """The order of metadata in a safetensors file is nobody's."""
    for _ in range(20):
        trace = save({"ids": np.arange(3)}, metadata={"nodes": nodes, "format": "t"})
        blob = {"train-000000-000": np.frombuffer(trace, np.uint8)}
        save_file(blob, run.path / "traces" / "step-000001.safetensors")
        expected = [] if nodes == "[]" else ["trace step-000001 train-000000-000 differs"]
        assert told(run, baseline) == expected
