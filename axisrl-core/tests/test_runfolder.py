import json
import os
import platform

import pytest

from axisrl.errors import UsageError
from axisrl.runfolder import RunFolder, find_run, list_runs, reward_of
from axisrl.testing.recorded import recorded_run
from axisrl.view.data import overview, to_json


def manifest(folder, **changes):
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def append(path, text):
    with path.open("a") as file:
        file.write(text)


def checkpoint(folder, step, *, complete=True):
    path = folder / "checkpoints" / f"step-{step:06d}"
    path.mkdir(parents=True)
    if complete:
        (path / "COMPLETE").write_text("")


def test_metrics_come_in_step_order_with_every_value(run_dir):
    metrics = RunFolder(run_dir).metrics
    assert [entry["step"] for entry in metrics] == [0, 1, 2, 3]
    assert metrics[3]["eval/accuracy"] == 0.5


def test_a_line_cut_off_by_a_kill_is_left_out(run_dir):
    append(run_dir / "metrics.jsonl", '{"step": 4, "reward/me')
    assert RunFolder(run_dir).metrics[-1]["step"] == 3
    assert RunFolder(run_dir).last_metrics["step"] == 3


def test_a_resumed_run_replaces_the_steps_it_repeats(run_dir):
    append(run_dir / "metrics.jsonl", '{"step": 2, "reward/mean": 0.5}\n')
    metrics = RunFolder(run_dir).metrics
    assert [entry["step"] for entry in metrics] == [0, 1, 2]
    assert reward_of(metrics[-1]) == 0.5


def test_last_metrics_are_read_from_the_end_of_a_long_file(run_dir):
    lines = [json.dumps({"step": step, "pad": "x" * 200}) for step in range(4, 2000)]
    append(run_dir / "metrics.jsonl", "\n".join(lines) + "\n")
    assert RunFolder(run_dir).last_metrics["step"] == 1999


def test_the_last_reward_is_found_where_the_last_update_of_a_window_has_none(run_dir):
    assert RunFolder(run_dir).last_reward == 0.75
    append(run_dir / "metrics.jsonl", '{"step": 4, "loss/total": 0.5}\n')
    assert RunFolder(run_dir).last_reward == 0.75
    assert RunFolder(run_dir / "nowhere").last_reward is None


def test_rollout_files_are_found_by_kind_and_step(run_dir):
    run = RunFolder(run_dir)
    assert run.rollout_steps("eval") == [0, 3]
    assert run.rollout_steps("step") == [1]
    assert [row["summary"]["member"] for row in run.rollouts("step", 1)] == [0, 1]
    assert run.rollouts("step", 2) == []


def test_an_empty_folder_reads_as_an_empty_run(tmp_path):
    run = RunFolder(tmp_path)
    assert (run.metrics, run.last_metrics, run.checkpoints, run.manifest) == ([], {}, [], {})
    assert run.rollout_steps("step") == []


def test_only_complete_checkpoints_count(run_dir):
    checkpoint(run_dir, 2)
    checkpoint(run_dir, 3, complete=False)
    assert RunFolder(run_dir).checkpoints == [2]


def test_a_run_whose_process_is_gone_was_interrupted(run_dir):
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    manifest(run_dir, state="running", pid=gone, hardware={"host": platform.node()})
    assert RunFolder(run_dir).state == "interrupted"


def test_a_run_whose_process_lives_is_running(run_dir):
    manifest(run_dir, state="running", pid=os.getpid(), hardware={"host": platform.node()})
    assert RunFolder(run_dir).state == "running"


def test_a_run_on_another_host_is_believed(run_dir):
    manifest(run_dir, state="running", pid=1, hardware={"host": "elsewhere"})
    assert RunFolder(run_dir).state == "running"


def test_only_a_stopped_run_with_a_checkpoint_can_be_resumed(run_dir):
    manifest(run_dir, state="interrupted")
    assert RunFolder(run_dir).resume_command == ""
    checkpoint(run_dir, 2)
    assert RunFolder(run_dir).resume_command == f"axisrl run --resume {run_dir}"
    manifest(run_dir, state="completed")
    assert RunFolder(run_dir).resume_command == ""


def test_the_stamp_changes_when_a_step_is_added(run_dir):
    run = RunFolder(run_dir)
    before = run.stamp
    assert run.stamp == before
    append(run_dir / "metrics.jsonl", '{"step": 4}\n')
    assert run.stamp != before


def test_runs_are_listed_newest_first_and_other_folders_left_out(run_dir):
    older = run_dir.parent / "older"
    older.mkdir()
    (older / "manifest.json").write_text('{"created": 1.0}')
    (run_dir.parent / "not-a-run").mkdir()
    assert [run.name for run in list_runs(run_dir.parent)] == ["demo", "older"]


def test_a_run_is_found_by_name_by_folder_and_as_the_newest(run_dir):
    for wanted in ("demo", str(run_dir), None):
        assert find_run(run_dir.parent, wanted).path == run_dir.resolve()


def test_a_folder_written_by_the_recorder_reads_whole(tmp_path):
    run = RunFolder(recorded_run(tmp_path))
    assert (run.state, run.last_metrics["step"]) == ("completed", 3)
    assert len(run.rollouts("step", 1)) == 8
    assert json.loads(to_json(overview(run)))["evals"] == [3]


def test_an_unknown_run_suggests_the_nearest(run_dir):
    with pytest.raises(UsageError, match="did you mean demo"):
        find_run(run_dir.parent, "dema")


def test_no_run_at_all_says_where_it_looked(tmp_path):
    with pytest.raises(UsageError, match=str(tmp_path)):
        find_run(tmp_path, None)
