import logging

import pytest

from axisrl.plugins.events import RunInfo
from axisrl.runtime.loggers import LoggerGroup


class Recorder:
    def __init__(self):
        self.calls = []

    def start(self, run, resume):
        self.calls.append(("start", resume))

    def scalars(self, step, values):
        self.calls.append(("scalars", step, dict(values)))

    def rollouts(self, step, rows):
        self.calls.append(("rollouts", step, len(rows)))

    def state_dict(self):
        return {"calls": len(self.calls)}

    def finish(self, outcome):
        self.calls.append(("finish", outcome))


class Watcher(Recorder):
    def progress(self, phase, done, total):
        self.calls.append(("progress", phase, done, total))


class Failing(Recorder):
    def __init__(self, *methods):
        super().__init__()
        for method in methods:
            setattr(self, method, self.fail)

    def fail(self, *args):
        self.calls.append("failed")
        raise RuntimeError("backend is down")


@pytest.fixture
def run(tmp_path):
    return RunInfo(name="r", recipe="a/b", run_dir=tmp_path, seed=0, config={})


def drive(group, run, states=None):
    group.start(run, states)
    for step in (1, 2, 3):
        group.progress("train", 1, 2)
        group.rollouts(step, [])
        group.scalars(step, {"loss/x": 0.5})
    state = group.state_dict()
    group.finish("completed")
    return state


def test_every_logger_gets_every_call_in_order(run):
    one, other = Recorder(), Watcher()
    state = drive(LoggerGroup([("core/a", one), ("core/b", other)]), run)
    assert one.calls[:3] == [("start", None), ("rollouts", 1, 0), ("scalars", 1, {"loss/x": 0.5})]
    assert one.calls[-1] == ("finish", "completed")
    assert ("progress", "train", 1, 2) in other.calls
    assert state == {"core/a": {"calls": 7}, "core/b": {"calls": 10}}


def test_each_logger_gets_its_own_resume_state(run):
    one, other = Recorder(), Recorder()
    drive(LoggerGroup([("core/a", one), ("core/b", other)]), run, {"core/b": {"id": "7"}})
    assert one.calls[0] == ("start", None) and other.calls[0] == ("start", {"id": "7"})


def test_two_loggers_of_one_kind_keep_separate_states(run):
    group = LoggerGroup([("core/a", Recorder()), ("core/a", Watcher())])
    assert drive(group, run) == {"core/a": {"calls": 7}, "core/a#2": {"calls": 10}}


@pytest.mark.parametrize(
    "method", ["start", "progress", "rollouts", "scalars", "state_dict", "finish"]
)
def test_a_logger_that_raises_is_reported_once_and_never_ends_the_run(run, caplog, method):
    healthy = Recorder()
    broken = Failing(method)
    broken.progress = getattr(broken, "progress", lambda *args: None)
    with caplog.at_level(logging.WARNING, "axisrl"):
        drive(LoggerGroup([("core/broken", broken), ("core/good", healthy)]), run)
    reports = [r.getMessage() for r in caplog.records if "backend is down" in r.getMessage()]
    assert len(reports) == 1
    assert f"core/broken failed in {method}" in reports[0]
    assert healthy.calls[-1] == ("finish", "completed")


def test_repeated_failures_are_summed_up_at_the_end(run, caplog):
    with caplog.at_level(logging.WARNING, "axisrl"):
        drive(LoggerGroup([("core/broken", Failing("scalars"))]), run)
    assert caplog.records[-1].getMessage() == "logger core/broken failed 3 times in this run"


def test_a_logger_that_could_not_start_is_left_alone_but_its_state_lives_on(run):
    broken = Failing("start")
    state = drive(LoggerGroup([("core/broken", broken)]), run, {"core/broken": {"id": "7"}})
    assert broken.calls == ["failed"]
    assert state == {"core/broken": {"id": "7"}}


def test_a_state_that_cannot_be_read_keeps_the_last_known_one(run):
    group = LoggerGroup([("core/broken", Failing("state_dict"))])
    assert drive(group, run, {"core/broken": {"id": "7"}}) == {"core/broken": {"id": "7"}}


def test_ctrl_c_inside_a_logger_is_not_swallowed(run):
    class Interrupted(Recorder):
        def scalars(self, step, values):
            raise KeyboardInterrupt

    group = LoggerGroup([("core/a", Interrupted())])
    group.start(run, None)
    with pytest.raises(KeyboardInterrupt):
        group.scalars(1, {})


def test_finish_is_idempotent(run):
    logger = Recorder()
    group = LoggerGroup([("core/a", logger)])
    group.start(run, None)
    group.finish("failed")
    group.finish("failed")
    assert logger.calls.count(("finish", "failed")) == 1
