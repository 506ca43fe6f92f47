import subprocess
import sys

import pytest

pytest.importorskip("tensorboard", reason="the extra axisrl-core[tensorboard] is not installed")

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from axisrl.builtin.tensorboard_logger import FOLDER, TensorBoardLogger
from axisrl.config.base import NoConfig


def read(run, tag):
    accumulator = EventAccumulator(str(run.run_dir / FOLDER))
    accumulator.Reload()
    return [(event.step, event.value) for event in accumulator.Scalars(tag)]


def write(context, run, *steps, finish=True, resume=None):
    logger = TensorBoardLogger(NoConfig(), context)
    logger.start(run, resume)
    for step in steps:
        logger.scalars(step, {"loss/x": step / 2})
    if finish:
        logger.finish("completed")
    return logger


def test_values_are_read_back_by_tensorboard_at_their_steps(context, run_info):
    run = run_info()
    write(context, run, 0, 1, 2)
    assert read(run, "loss/x") == [(0, 0.0), (1, 0.5), (2, 1.0)]


def test_a_step_is_on_disk_before_the_run_ends(context, run_info):
    run = run_info()
    logger = write(context, run, 1, finish=False)
    assert read(run, "loss/x") == [(1, 0.5)]
    logger.finish("failed")


def test_a_resumed_run_drops_what_was_logged_beyond_its_checkpoint(context, run_info, monkeypatch):
    run = run_info()
    write(context, run, 1, 2, 3, 4)
    # File names carry the second they were made in, and readers go by name.
    monkeypatch.setattr("time.time", lambda: 4e9)
    write(context, run_info(resumed_from=2), 3)
    assert read(run, "loss/x") == [(1, 0.5), (2, 1.0), (3, 1.5)]


def test_a_step_the_checkpoint_still_owed_is_shown_once(context, run_info, monkeypatch):
    run = run_info()
    write(context, run, 1, 2)
    monkeypatch.setattr("time.time", lambda: 4e9)
    write(context, run_info(resumed_from=2), 2, 3, resume={"step": 1})
    assert read(run, "loss/x") == [(1, 0.5), (2, 1.0), (3, 1.5)]


def test_it_does_not_import_torch():
    code = (
        "import axisrl.builtin.tensorboard_logger, sys; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'ray')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_finish_is_idempotent(context, run_info):
    logger = write(context, run_info(), 1)
    logger.finish("completed")
