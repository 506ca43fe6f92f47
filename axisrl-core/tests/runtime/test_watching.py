"""What a whole run tells of its time: metrics and trace, measured from different sides."""

import numpy as np
import pytest

from axisrl.runtime.loggers import LoggerGroup
from axisrl.runtime.rows import WindowInput
from axisrl.runtime.spans import read_events
from axisrl.runtime.trainer import _ages
from axisrl.types import Sample

ASYNC = ("schedule.kind=async", "schedule.max_staleness=2")


def tracks(run_dir):
    """Track -> its spans as (name, begin, end) in seconds."""
    events = read_events(run_dir / "events.jsonl")
    named = {
        e["tid"]: (e["args"]["process"], e["args"]["name"])
        for e in events
        if e["name"] == "thread_name"
    }
    found = {}
    for e in events:
        if e["ph"] == "X":
            span = (e["name"], e["ts"] / 1e6, (e["ts"] + e["dur"]) / 1e6)
            found.setdefault(named[e["tid"]], []).append(span)
    return found


def test_every_side_of_a_run_has_a_track(stage):
    stage("engine.latency_s=0.01", "train.updates=2")
    found = tracks(stage.dir)
    phases = {name for name, _, _ in found["driver", "phases"]}
    assert {"rollout", "score", "train", "sync", "checkpoint"} <= phases
    assert [name for name, _, _ in found["trainer", "policy"]] == ["step", "step"]
    assert len(found["engine rank 0", "weights"]) == 2
    assert found["engine rank 0", "calls"]
    played = [span for (process, _), all in found.items() if "rollout" in process for span in all]
    assert len(played) >= 16


@pytest.mark.parametrize("schedule", [(), ASYNC])
def test_the_idle_share_of_an_engine_is_what_its_spans_leave(stage, schedule):
    stage("engine.latency_s=0.02", "train.updates=3", "eval=null", *schedule)
    found = tracks(stage.dir)
    lines = [line for line in stage.metrics if "time/engine_idle_frac" in line]
    assert len(lines) == 3
    syncs = [end for name, _, end in found["driver", "phases"] if name == "sync"]
    begin, end = syncs[-2:]
    calls = found["engine rank 0", "calls"]
    busy = sum(max(0.0, min(b, end) - max(a, begin)) for _, a, b in calls)
    assert lines[-1]["time/engine_idle_frac"] == pytest.approx(1 - busy / (end - begin), abs=0.15)
    assert all(0 <= line["time/trainer_wait_frac"] <= 1 for line in lines)


def test_an_asynchronous_run_tells_its_queues_and_the_ages_of_its_tokens(stage):
    stage("engine.latency_s=0.01", "train.updates=3", *ASYNC)
    for line in stage.metrics[1:]:
        ages = [line[f"rollout/staleness_{age}_frac"] for age in ("age_0", "age_1", "age_2")]
        assert sum(ages) + line["rollout/staleness_older_frac"] == pytest.approx(1)
        assert line["rollout/queue_open"] >= 0 and line["rollout/queue_home"] >= 0


def test_a_synchronous_run_has_no_ages_and_tells_what_passed_through_its_driver(stage):
    stage("train.updates=1")
    line = stage.metrics[-1]
    assert not [name for name in line if "staleness" in name]
    assert 200 < line["system/driver_bytes_per_rollout"] <= 1024


@pytest.mark.parametrize(("schedule", "counted"), [((), True), (ASYNC, False)])
def test_rollouts_that_come_home_beside_the_learning_are_no_phase_of_it(
    stage, monkeypatch, schedule, counted
):
    shown = []
    monkeypatch.setattr(
        LoggerGroup, "progress", lambda self, phase, done, total: shown.append((phase, done))
    )
    stage("train.updates=3", "eval=null", *schedule)
    assert shown.count(("rollout", 0)) == 3
    assert any(phase == "rollout" and done for phase, done in shown) is counted


def test_trained_tokens_are_counted_by_age_and_older_ones_together():
    versions = np.array([5, 5, 4, 3, 2, 0, 5], np.int32)
    mask = np.array([1, 1, 1, 1, 1, 1, 0], np.bool_)
    sample = Sample.__new__(Sample)
    object.__setattr__(sample, "versions", versions)
    object.__setattr__(sample, "loss_mask", mask)
    window = WindowInput(updates=[], oldest_version=3, version=5)
    assert _ages([sample, sample], window) == (4, 2, 2, 4)
    assert _ages([sample], WindowInput(updates=[])) == ()
