import errno
import json
import math
import os

import pytest

from axisrl.builtin.jsonl_logger import FILE, JsonlLogger
from axisrl.config.base import NoConfig


@pytest.fixture
def logger(context):
    return JsonlLogger(NoConfig(), context)


def lines(run):
    return [json.loads(line) for line in (run.run_dir / FILE).read_text().splitlines()]


def without_time(entries):
    return [{name: value for name, value in e.items() if name != "time"} for e in entries]


def log(logger, *steps):
    for step in steps:
        logger.scalars(step, {"loss/x": step / 2})


def test_each_step_is_one_line_that_is_on_disk_at_once(logger, run_info):
    run = run_info()
    logger.start(run, None)
    logger.scalars(0, {"eval/greedy": 0.25})
    assert without_time(lines(run)) == [{"step": 0, "eval/greedy": 0.25}]
    logger.scalars(1, {"loss/x": 1e-9})
    assert without_time(lines(run))[1] == {"step": 1, "loss/x": 1e-9}
    assert lines(run)[1]["time"] > 1.6e9


def test_floats_survive_bit_for_bit(logger, run_info):
    run, value = run_info(), 0.1 + 0.2
    logger.start(run, None)
    logger.scalars(1, {"x": value})
    assert lines(run)[0]["x"].hex() == value.hex()


def test_what_json_lacks_becomes_null(logger, run_info):
    run = run_info()
    logger.start(run, None)
    logger.scalars(1, {"a": math.nan, "b": -math.inf, "c": 0.0})
    assert without_time(lines(run)) == [{"step": 1, "a": None, "b": None, "c": 0.0}]


@pytest.mark.parametrize("step", [1, 2])
def test_steps_must_rise(logger, run_info, step):
    logger.start(run_info(), None)
    log(logger, 2)
    with pytest.raises(ValueError, match=rf"step {step} .* after step 2"):
        logger.scalars(step, {})


def test_a_resumed_file_equals_an_uninterrupted_one(context, run_info):
    run = run_info()
    killed = JsonlLogger(NoConfig(), context)
    killed.start(run, None)
    log(killed, 1, 2, 3, 4)
    resumed = JsonlLogger(NoConfig(), context)
    resumed.start(run_info(resumed_from=2), {"step": 2})
    log(resumed, 3, 4, 5)
    resumed.finish("completed")
    assert without_time(lines(run)) == [{"step": n, "loss/x": n / 2} for n in (1, 2, 3, 4, 5)]


@pytest.mark.parametrize("torn", ['{"step": 2, "lo', '{"step": 2, "loss/x": 1.0}', "\x00\x00"])
def test_a_line_that_a_killed_run_left_unfinished_is_cut(context, run_info, torn):
    run = run_info()
    (run.run_dir / FILE).write_text('{"step": 1, "loss/x": 0.5}\n' + torn)
    logger = JsonlLogger(NoConfig(), context)
    logger.start(run_info(resumed_from=2), None)
    log(logger, 2)
    assert without_time(lines(run)) == [{"step": n, "loss/x": n / 2} for n in (1, 2)]


def test_a_step_the_checkpoint_still_owed_is_written_anew(context, run_info):
    """Logged after the checkpoint of its own step was saved: the state, not the step, decides."""
    run = run_info()
    killed = JsonlLogger(NoConfig(), context)
    killed.start(run, None)
    log(killed, 1)
    state = killed.state_dict()
    log(killed, 2)
    resumed = JsonlLogger(NoConfig(), context)
    resumed.start(run_info(resumed_from=2), state)
    log(resumed, 2, 3)
    assert [entry["step"] for entry in lines(run)] == [1, 2, 3]


def test_resuming_without_a_file_starts_one(logger, run_info):
    run = run_info(resumed_from=4)
    logger.start(run, {"step": 4})
    log(logger, 5)
    assert [entry["step"] for entry in lines(run)] == [5]


def test_the_step_of_the_checkpoint_may_still_be_due_after_a_resume(logger, run_info):
    run = run_info(resumed_from=2)
    (run.run_dir / FILE).write_text('{"step": 1}\n')
    logger.start(run, None)
    log(logger, 2)
    assert [entry["step"] for entry in lines(run)] == [1, 2]


def test_a_disk_that_fills_up_halfway_leaves_no_torn_line(logger, run_info, monkeypatch):
    run, real, calls = run_info(), os.write, []

    def half(file, data):
        calls.append(data)
        if len(calls) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[: len(data) // 2])

    logger.start(run, None)
    log(logger, 1)
    with monkeypatch.context() as full:
        full.setattr(os, "write", half)
        with pytest.raises(OSError, match="No space"):
            log(logger, 2)
    log(logger, 2)
    assert [entry["step"] for entry in lines(run)] == [1, 2]


def test_state_is_the_last_step(logger, run_info):
    logger.start(run_info(), None)
    assert logger.state_dict() == {"step": None}
    log(logger, 1, 2)
    assert logger.state_dict() == {"step": 2}


def test_logging_outside_a_run_is_an_error(logger, run_info):
    with pytest.raises(ValueError, match="outside a run"):
        log(logger, 1)
    logger.start(run_info(), None)
    logger.finish("completed")
    logger.finish("completed")
    with pytest.raises(ValueError, match="outside a run"):
        log(logger, 1)
