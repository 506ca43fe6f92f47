import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("wandb", reason="the extra axisrl-core[wandb] is not installed")

from axisrl.builtin import samples
from axisrl.builtin.config import WandbConfig
from axisrl.builtin.wandb_logger import WandbLogger
from axisrl.errors import EnvironmentProblem
from axisrl.plugins.events import RunInfo
from axisrl.types import BuildContext


def build(run, services=None, **options):
    context = BuildContext(run_dir=run.run_dir, services=services or {})
    return WandbLogger(WandbConfig(**options), context)


def offline_folders(run):
    return sorted((run.run_dir / "wandb").glob("offline-run-*"))


def records(folder):
    """What W&B's own reader finds in an offline run's record."""
    reading = subprocess.run(
        [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(folder)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "No such command" in reading.stderr:
        pytest.skip("this wandb cannot print an offline run's records")
    return [json.loads(line) for line in reading.stdout.splitlines()]


def history(folder):
    found = [record["history"]["item"] for record in records(folder) if "history" in record]
    return [(item["_step"], item) for item in found]


def run_ids(folder):
    return [record["run"]["run_id"] for record in records(folder) if "run" in record]


def log(logger, steps, rows=()):
    for step in steps:
        logger.rollouts(step, list(rows))
        logger.scalars(step, {"loss/x": step / 2, "train/seen": float(step)})


def test_a_resumed_offline_run_keeps_its_id_and_its_steps_rise(run_info, make_row):
    run = run_info()
    first = build(run, table_every=1)
    first.start(run, None)
    log(first, [0, 1, 2, 3], [make_row(answer="a" * 9000)])
    state = json.loads(json.dumps(first.state_dict()))
    log(first, [4, 5])
    first.finish("interrupted")

    second = build(run, table_every=1)
    second.start(run_info(resumed_from=3), state)
    assert second.state_dict() == state
    log(second, [4, 5, 6, 7])
    second.finish("completed")

    folders = offline_folders(run)
    assert len(folders) == 2
    assert [run_ids(folder)[0] for folder in folders] == [state["id"]] * 2
    before, after = (history(folder) for folder in folders)
    assert [step for step, _ in before] == [0, 1, 2, 3, 4, 5]
    assert [step for step, _ in after] == [6, 7]
    assert all(item["loss/x"] == step / 2 for step, item in before + after)


def test_samples_ride_on_their_steps_commit_and_are_short(run_info, make_row):
    run = run_info()
    logger = build(run, table_every=2, table_rows=1, table_chars=50)
    logger.start(run, None)
    log(logger, [1, 2, 3], [make_row(answer="a" * 9000), make_row(reward=0.0)])
    logger.finish("completed")
    (folder,) = offline_folders(run)
    told = [
        (step, any(name.startswith("rollout/samples") for name in item))
        for step, item in history(folder)
    ]
    assert told == [(1, True), (2, False), (3, True)]
    tables = [json.loads(path.read_text()) for path in folder.rglob("*.table.json")]
    assert [len(table["data"]) for table in tables] == [1, 1]
    assert all(len(table["data"][0][-1]) < 100 for table in tables)


def test_a_killed_run_is_continued_without_a_step_twice(run_info):
    run = run_info()
    # Without the W&B service of this process, which would outlive the child.
    alone = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    command = [sys.executable, __file__, str(run.run_dir)]
    killed = subprocess.run(command, check=False, env=alone)
    assert killed.returncode == -signal.SIGKILL
    logger = build(run)
    logger.start(run_info(resumed_from=1), {"id": "abc123"})
    log(logger, [2, 3, 4])
    logger.finish("completed")
    assert [step for step, _ in history(offline_folders(run)[-1])] == [4]


def test_the_note_of_another_run_id_does_not_hold_back_steps(run_info):
    run = run_info()
    (run.run_dir / "wandb").mkdir()
    (run.run_dir / "wandb" / "committed.json").write_text('{"id": "other", "step": 9}')
    logger = build(run)
    logger.start(run, None)
    log(logger, [1])
    logger.finish("completed")
    assert [step for step, _ in history(offline_folders(run)[-1])] == [1]


def test_disabled_writes_nothing_and_does_not_import_wandb(run_info):
    run = run_info()
    code = (
        "import sys, pathlib\n"
        "from axisrl.builtin.config import WandbConfig\n"
        "from axisrl.builtin.wandb_logger import WandbLogger\n"
        "from axisrl.plugins.events import RunInfo\n"
        "from axisrl.types import BuildContext\n"
        "here = pathlib.Path(sys.argv[1])\n"
        "logger = WandbLogger(WandbConfig(mode='disabled'), BuildContext(run_dir=here))\n"
        "logger.start(RunInfo(name='r', recipe='', run_dir=here, seed=0, config={}), {'id': 'k'})\n"
        "logger.scalars(1, {'x': 1.0}); logger.rollouts(1, [])\n"
        "assert logger.state_dict() == {'id': 'k'}\n"
        "logger.finish('completed')\n"
        "assert 'wandb' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code, str(run.run_dir)], check=True)
    assert list(run.run_dir.iterdir()) == []


def test_a_slow_backend_never_blocks_a_step_and_costs_samples_first(run_info, make_row, caplog):
    run = run_info()
    logger = build(run, table_every=1)
    logger.start(run, None)
    gate = threading.Event()
    logger._worker.submit(gate.wait)
    with caplog.at_level("WARNING", "axisrl"):
        log(logger, range(1, 21), [make_row()])
        gate.set()
        logger.finish("completed")
    assert "samples of" in caplog.text and "left out" in caplog.text
    kept = history(offline_folders(run)[0])
    assert [step for step, _ in kept] == list(range(1, 21))


def test_a_failing_backend_is_raised_to_the_caller_and_the_id_survives(run_info):
    run = run_info()
    logger = build(run)
    logger.start(run, None)
    logger._worker.submit(lambda: 1 / 0)
    state = logger.state_dict()
    assert state["id"]
    with pytest.raises(ZeroDivisionError):
        logger.scalars(1, {"x": 1.0})
    logger.finish("failed")
    assert [step for step, _ in history(offline_folders(run)[0])] == [1]


def test_an_online_run_without_its_named_key_says_which_variable_is_missing(run_info):
    run = run_info()
    logger = build(run, {"environ": {}}, mode="online", api_key_env="TEAM_WANDB_KEY")
    with pytest.raises(EnvironmentProblem, match="TEAM_WANDB_KEY"):
        logger.start(run, None)


def test_the_key_is_taken_from_the_named_variable_and_stays_out_of_the_run_folder(run_info):
    run, key = run_info(), "k" * 40
    logger = build(run, {"environ": {"TEAM_WANDB_KEY": key}}, api_key_env="TEAM_WANDB_KEY")
    assert logger._api_key() == key
    logger.start(run, None)
    log(logger, [1])
    logger.finish("completed")
    written = [path for path in run.run_dir.rglob("*") if path.is_file()]
    assert written and not any(key.encode() in path.read_bytes() for path in written)


def test_a_first_sample_is_due_at_the_first_update():
    assert samples.due(1, WandbConfig().table_every)


@pytest.mark.parametrize("options", [{"table_rows": -1}, {"table_every": 0}, {"table_chars": 0}])
def test_senseless_options_are_refused(options):
    with pytest.raises(ValueError, match="table_rows"):
        WandbConfig(**options)


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    info = RunInfo(name="demo", recipe="", run_dir=folder, seed=0, config={})
    doomed = build(info)
    doomed.start(info, {"id": "abc123"})
    log(doomed, [1, 2, 3])
    doomed.state_dict()
    os.kill(os.getpid(), signal.SIGKILL)
