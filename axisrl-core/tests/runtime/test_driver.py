"""Whole runs on the stage: what a run folder holds, how a run ends, and that a killed one goes on
exactly."""

import asyncio
import itertools
import json
import os
import signal
import sys
import threading

import numpy as np
import pytest

from axisrl.errors import (
    CheckpointError,
    ConfigError,
    EnvironmentProblem,
    PluginMismatch,
    RunFailed,
    UsageError,
    WeightSyncError,
)
from axisrl.runtime.checkpoint import latest, read_state
from axisrl.runtime.claim import claimed
from axisrl.testing import fakes


def untimed(metrics):
    """Metrics without what the clock and the machine decide."""
    told = [(line, [k for k in line if not k.startswith(("time", "system/"))]) for line in metrics]
    return [{k: line[k] for k in names if not k.endswith("_per_s")} for line, names in told]


def final_weights(run_dir):
    return np.load(latest(run_dir) / "trainer" / "weights.npy")


def test_a_run_logs_every_step_once_and_ends_completed(stage):
    result = stage()
    assert (result.outcome, result.step) == ("completed", 4)
    assert [line["step"] for line in stage.metrics] == [0, 1, 2, 3, 4]
    assert stage.manifest["state"] == "completed"
    assert stage.manifest["step"] == 4
    assert stage.metrics[-1]["train/version"] == 4


def test_evaluation_happens_before_the_first_update_every_n_and_at_the_end(stage):
    stage()
    assert [line["step"] for line in stage.metrics if "eval/accuracy" in line] == [0, 2, 4]
    assert stage.metrics[0]["eval/accuracy"] == 1  # greedy is always right on this stage
    assert len(stage.rollouts("eval-000002")) == 3


def test_every_rollout_of_a_step_is_written_with_its_advantage(stage):
    stage()
    rows = stage.rollouts("step-000001")
    assert len(rows) == 8
    for row in rows:
        right = row["messages"][-1]["content"] == row["task"]["data"]["answer"]
        assert row["summary"]["reward"] == float(right)
        assert row["verdicts"]["exact"]["passed"] is right
        assert row["advantage"] is not None
    assert "trace" not in rows[0]["summary"]


def test_the_traces_of_a_step_can_be_read_back(stage):
    from safetensors.numpy import load_file

    from axisrl.trace import Trace

    stage()
    blobs = load_file(stage.dir / "traces" / "step-000003.safetensors")
    traces = [Trace.from_bytes(blob.tobytes()) for blob in blobs.values()]
    assert len(traces) == 8
    sampled = [node for trace in traces for node in trace if node.kind == "sampled"]
    assert {int(version) for node in sampled for version in node.versions} == {2}


def test_the_store_is_empty_after_a_run(stage, tmp_path):
    folder = tmp_path / "shm"
    stage(f"store={{use: core/shm, folder: {folder}}}")
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_several_updates_from_one_window_use_old_logprobs_only_after_the_first(stage):
    stage("train.updates_per_sync=2", "loss=stage/proximal")
    trainer = _trainer_class()
    assert trainer.passes == 2  # one for the second update of each of the two windows
    assert [line["step"] for line in stage.metrics] == [0, 1, 2, 3, 4]
    assert stage.metrics[-1]["train/version"] == 2


def test_no_old_logprob_pass_happens_when_nothing_needs_it(stage):
    stage("loss=stage/proximal")
    assert _trainer_class().passes == 0
    stage.dir = stage.dir.with_name("second")
    stage("train.updates_per_sync=2")
    assert _trainer_class().passes == 0


def _stage_modules():
    loaded = [m for name, m in sys.modules.items() if name.startswith("axisrl_local_")]
    return [module for module in loaded if hasattr(module, "Centred")]


def _trainer_class():
    return _stage_modules()[0].Trainer


@pytest.fixture(autouse=True)
def no_passes_yet():
    for module in _stage_modules():
        module.Trainer.passes = 0


def test_resume_repeats_the_rest_bit_for_bit(stage, tmp_path):
    stage()
    whole, weights = untimed(stage.metrics), final_weights(stage.dir)
    for stop_after in (1, 2, 3):
        stage.dir = tmp_path / f"stopped-{stop_after}"
        with pytest.raises(RunFailed, match="scripted failure"):
            stage(f"trainer.fail_at_step={stop_after + 1}")
        assert stage.manifest["state"] == "failed"
        stage(resume=True)
        assert untimed(stage.metrics) == whole
        assert np.array_equal(final_weights(stage.dir), weights)


def test_a_failed_run_keeps_what_it_had_learnt(stage):
    with pytest.raises(RunFailed, match="scripted failure"):
        stage("trainer.fail_at_step=3", "checkpoint.every=0")
    # It came inside a window: the trainer is ahead of the border, so nothing is saved.
    assert latest(stage.dir) is None
    with pytest.raises(RunFailed, match="rollouts failed"):
        stage.dir = stage.dir.with_name("second")
        stage("checkpoint.every=0", "rollout.max_context=20")
    assert "rollouts failed" in stage.manifest["error"]


def test_resume_without_a_checkpoint_is_one_clear_error(stage):
    with pytest.raises(CheckpointError, match="no complete checkpoint"):
        stage(resume=True)


def test_a_changed_plugin_version_at_resume_is_refused_and_named(stage, caplog):
    stage("train.updates=2")
    manifest = stage.manifest
    manifest["plugins"]["plugins"].append(
        {"name": "gone", "value": "gone.plugin", "distribution": "d", "version": "1.0"}
    )
    (stage.dir / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(PluginMismatch, match=r"gone: then d 1.0, now has none"):
        stage(resume=True)
    assert "drift" not in caplog.text
    assert stage(resume=True, allow_drift=True).step == 4
    assert "drift: plugins changed since the run started: gone: then d 1.0" in caplog.text


def test_a_run_that_goes_on_elsewhere_is_not_resumed(stage):
    stage("train.updates=2")
    before = (stage.dir / "metrics.jsonl").read_bytes()
    with claimed(stage.dir), pytest.raises(UsageError, match="goes on in another process"):
        stage("train.updates=2", resume=True)
    assert (stage.dir / "metrics.jsonl").read_bytes() == before


def test_resuming_a_completed_run_changes_nothing_and_completes_again(stage):
    stage()
    before = contents(stage.dir)
    result = stage(resume=True)
    assert (result.outcome, result.step) == ("completed", 4)
    assert contents(stage.dir) == before


def contents(run_dir):
    """Every file but those that say what happened when."""
    files = [path for path in sorted(run_dir.rglob("*")) if path.is_file()]
    timed = ("manifest.json", "events.jsonl")
    return {path: path.read_bytes() for path in files if path.name not in timed}


def test_a_resumed_run_keeps_how_it_was_started_and_lists_how_it_went_on(stage):
    stage("train.updates=2")
    first = stage.manifest
    stage("train.updates=2", resume=True)
    again = stage.manifest
    assert (again["created"], again["command"]) == (first["created"], first["command"])
    assert [entry["step"] for entry in again["resumed"]] == [2]


@pytest.mark.parametrize(
    "wrong", ["model=/nowhere", "dataset={use: core/tasks, path: /nowhere.jsonl}", "seed=13"]
)
def test_what_is_missing_is_found_before_anything_is_written_or_removed(stage, wrong):
    with pytest.raises((EnvironmentProblem, ConfigError)):
        stage(wrong)
    assert not stage.dir.exists()
    stage("train.updates=2")
    before = contents(stage.dir)
    with pytest.raises((EnvironmentProblem, ConfigError)):
        stage(wrong, overwrite=True)
    assert contents(stage.dir) == before


def test_overwriting_starts_from_an_empty_folder(stage):
    stage("train.updates=4")
    stage("train.updates=2", overwrite=True)
    assert [line["step"] for line in stage.metrics] == [0, 1, 2]
    assert not (stage.dir / "rollouts" / "step-000003.jsonl").exists()


def test_an_error_while_saving_does_not_hide_why_the_run_failed(stage, monkeypatch):
    def full(self, path):
        raise OSError("disk full")

    monkeypatch.setattr("axisrl.testing.fakes.ScriptedTrainer.save", full)
    with pytest.raises(RunFailed, match="rollouts failed"):
        stage("checkpoint.every=0", "verifiers.odd=stage/late")


@pytest.mark.parametrize("updates_per_sync", [1, 2])
def test_a_run_killed_at_any_update_ends_as_if_it_never_was(stage, tmp_path, updates_per_sync):
    """Epochs of 3 tasks and windows of 2 or 4: the kills come at epoch edges and inside them."""
    sizes = ("dataset.size=3", f"train.updates_per_sync={updates_per_sync}", "train.updates=6")
    stage(*sizes)
    whole, weights = contents_untimed(stage), final_weights(stage.dir)
    for fatal in range(2, 7):
        stage.dir = tmp_path / f"killed-{updates_per_sync}-{fatal}"
        with pytest.raises(RunFailed, match="scripted failure"):
            stage(*sizes, f"trainer.fail_at_step={fatal}")
        if latest(stage.dir) is None:
            continue  # before the first border: it starts anew
        stage(*sizes, resume=True)
        assert contents_untimed(stage) == whole
        assert np.array_equal(final_weights(stage.dir), weights)


def contents_untimed(stage):
    """Metrics, and the rows of every rollout file without their durations."""
    rows = {}
    for path in sorted((stage.dir / "rollouts").iterdir()):
        rows[path.name] = stage.rollouts(path.stem)
        for row in rows[path.name]:
            del row["summary"]["seconds"]
    return untimed(stage.metrics), rows


@pytest.mark.parametrize(
    ("method", "call"),
    [
        ("ScriptedEngine.start", 1),  # models are being loaded
        ("ScriptedEngine.generate", 1),  # evaluation before the first update
        ("ScriptedEngine.generate", 6),  # rollouts of the first window
        ("ScriptedEngine.generate", 21),  # evaluation of step 2
        ("ScriptedTrainer.step", 2),
        ("ScriptedTrainer.weight_update", 2),
        ("ScriptedTrainer.save", 2),
        ("ScriptedTrainer.step", 4),
    ],
)
def test_sigterm_in_any_phase_ends_at_a_border_and_resume_goes_on_exactly(
    stage, tmp_path, monkeypatch, method, call
):
    stage()
    whole, weights = contents_untimed(stage), final_weights(stage.dir)
    stage.dir = tmp_path / "stopped"
    name, _, attribute = method.partition(".")
    owner = getattr(fakes, name)
    real, calls = getattr(owner, attribute), itertools.count(1)

    def stopping(*args):
        if next(calls) == call:
            os.kill(os.getpid(), signal.SIGTERM)
        return real(*args)

    with monkeypatch.context() as patched:
        patched.setattr(owner, attribute, stopping)
        assert stage().outcome == "interrupted"
    assert stage.manifest["state"] == "interrupted"
    assert stage(resume=True).outcome == "completed"
    assert contents_untimed(stage) == whole
    assert np.array_equal(final_weights(stage.dir), weights)


@pytest.mark.parametrize("method", ["ScriptedTrainer.save", "ScriptedTrainer.stop"])
def test_sigterm_after_the_last_update_changes_nothing(stage, monkeypatch, method):
    name, _, attribute = method.partition(".")
    real = getattr(getattr(fakes, name), attribute)

    def stopping(*args):
        os.kill(os.getpid(), signal.SIGTERM)
        return real(*args)

    monkeypatch.setattr(getattr(fakes, name), attribute, stopping)
    assert stage("checkpoint.every=0").outcome == "completed"
    assert stage.manifest["state"] == "completed"


def test_an_engine_that_hangs_does_not_keep_a_failed_run_from_ending(stage, monkeypatch, caplog):
    async def hang(self):
        await asyncio.Event().wait()

    monkeypatch.setattr("axisrl.testing.fakes.ScriptedEngine.stop", hang)
    monkeypatch.setattr("axisrl.runtime.parts._CLOSE_S", 0.05)
    with pytest.raises(RunFailed, match="scripted failure"):
        stage("trainer.fail_at_step=1")
    assert "an engine did not close within 0.05 s" in caplog.text


def test_a_dataset_without_tasks_is_a_config_error(stage):
    with pytest.raises(ConfigError, match=r"eval\.dataset: stage/none holds no task"):
        stage("eval.dataset=stage/none")


@pytest.mark.parametrize("bad", ["version", "checksum", "never"])
def test_no_rollout_starts_after_a_sync_that_is_not_echoed(stage, bad):
    with pytest.raises(WeightSyncError, match=r"engine rank 0, on version 0,.* 1\b"):
        stage(f"engine.bad_ack={bad}", "placement.sync_timeout_s=0.2")
    names = sorted(path.stem for path in (stage.dir / "rollouts").iterdir())
    assert names == ["eval-000000", "step-000001"]


def test_a_scorer_that_never_returns_costs_its_rollouts_and_the_run_goes_on(stage):
    stage(
        "verifiers.odd={use: stage/odd, how: hangs, of: 3}",
        "rollout.score_timeout_s=0.05",
        "rollout.max_failed_fraction=1",
        "train.updates=1",
    )
    (line,) = [line for line in stage.metrics if line["step"] == 1]
    failed = [r for r in stage.rollouts("step-000001") if r["summary"]["reward"] is None]
    assert line["rollout/verifier_error"] == len(failed) > 0
    assert all("exact" in row["verdicts"] for row in failed)
    assert all(row["advantage"] is None for row in failed)


def test_without_a_verifier_accuracy_is_absent_and_not_zero(stage):
    stage(
        "verifiers.exact=null",
        "rewards={main: null, said: core/sum}",
        "train.updates=2",
        "eval.samples=2",
    )
    names = {name for line in stage.metrics for name in line}
    assert {"eval/reward", "reward/mean"} <= names
    assert not [name for name in names if "accuracy" in name or "pass" in name]


def test_every_configured_verifier_judges_every_scored_rollout(stage):
    stage("verifiers.second=stage/exact", "train.updates=1")
    for row in stage.rollouts("step-000001"):
        assert row["verdicts"].keys() == {"exact", "second"}


def test_a_loss_that_needs_what_the_trainer_lacks_is_refused_before_the_first_rollout(stage):
    with pytest.raises(ConfigError, match="needs a crystal ball"):
        stage("loss=stage/valued")
    assert (
        not list((stage.dir / "rollouts").glob("*")) if (stage.dir / "rollouts").exists() else True
    )


def test_sigterm_writes_a_checkpoint_and_resume_finishes_the_same_run(stage, tmp_path):
    stage()
    whole = untimed(stage.metrics)
    stage.dir = tmp_path / "stopped"
    second = stage.dir / "rollouts" / "step-000002.jsonl"

    def stop_when_two_steps_are_done():
        while not second.exists():
            threading.Event().wait(0.002)
        os.kill(os.getpid(), signal.SIGTERM)

    timer = threading.Thread(target=stop_when_two_steps_are_done)
    timer.start()
    result = stage("checkpoint.every=0", "engine.latency_s=0.05")
    timer.join()
    assert result.outcome == "interrupted"
    assert stage.manifest["state"] == "interrupted"
    assert read_state(latest(stage.dir)).step == result.step >= 2
    stage("checkpoint.every=0", "engine.latency_s=0.05", resume=True)
    assert untimed(stage.metrics) == whole


def test_an_evaluation_that_fails_over_the_limit_ends_the_run_with_its_causes(stage):
    with pytest.raises(RunFailed, match=r"(?s)3 of 3 rollouts failed.*verifier bug"):
        stage("verifiers.odd=stage/odd")
    assert len(stage.rollouts("eval-000000")) == 3


def test_an_option_that_is_wrong_for_every_rollout_ends_the_run_as_a_config_error(stage):
    with pytest.raises(ConfigError, match="no such judge"):
        stage("verifiers.odd={use: stage/odd, how: misconfigured}")


def test_a_hook_that_fails_is_counted_at_the_end_and_ends_no_run(stage, monkeypatch, caplog):
    monkeypatch.setenv("STAGE_DEAF", "1")
    assert stage().outcome == "completed"
    assert "axisrl_step_finished failed 4 times in this run, first: ValueError" in caplog.text
