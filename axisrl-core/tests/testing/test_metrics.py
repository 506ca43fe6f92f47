"""Each check of LoggerSuite catches a logger that breaks its promise."""

import json
import socket

import pytest

from axisrl.testing import LoggerCase, LoggerSuite
from axisrl.testing import metrics as checks


def read(run_dir):
    lines = [json.loads(line) for line in (run_dir / "kept.jsonl").read_text().splitlines()]
    return {line.pop("step"): line for line in lines}


CASE = LoggerCase(use="toy/logger", read=read, stable_state=("id",))


class Good:
    def __init__(self, context):
        self.id = ""

    def start(self, run, resume):
        self.path = run.run_dir / "kept.jsonl"
        self.id = resume["id"] if resume else "run-1"

    def rollouts(self, step, rows):
        self.rows = len(rows)

    def scalars(self, step, values):
        with self.path.open("a") as file:
            file.write(json.dumps({"step": step, **values}) + "\n")

    def state_dict(self):
        return {"id": self.id}

    def finish(self, outcome):
        self.outcome = outcome


class KnowsOneOutcome(Good):
    def finish(self, outcome):
        if outcome != "completed":
            raise ValueError(f"outcome {outcome}")


class FillsWithZero(Good):
    def scalars(self, step, values):
        super().scalars(step, {"eval/greedy": 0.0} | dict(values))


class Rounds(Good):
    def scalars(self, step, values):
        super().scalars(step, {name: round(value, 1) for name, value in values.items()})


class DropsAStep(Good):
    def scalars(self, step, values):
        if step != 2:
            super().scalars(step, values)


class StateWithAnObject(Good):
    def state_dict(self):
        return {"id": self.id, "logger": self}


class StateWithATuple(Good):
    def state_dict(self):
        return {"id": self.id, "at": (1, 2)}


class NewIdEachTime(Good):
    def start(self, run, resume):
        super().start(run, None)
        self.id = f"run-{id(self)}"


class StartsAfresh(Good):
    def start(self, run, resume):
        super().start(run, resume)
        self.path.unlink(missing_ok=True)


class PhonesHome(Good):
    def start(self, run, resume):
        super().start(run, resume)
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as line:
            line.connect(("192.0.2.1", 9))  # UDP to a documentation address: nothing is sent


BROKEN = [
    (checks.what_is_logged_is_kept, FillsWithZero, "step 1: eval/greedy was not measured"),
    (checks.what_is_logged_is_kept, Rounds, r"reward/mean was 0\.25 and is kept as 0\.2"),
    (checks.what_is_logged_is_kept, DropsAStep, r"steps \[1, 3\] are kept of \[1, 2, 3\]"),
    (checks.state_is_json, StateWithAnObject, "is not JSON"),
    (checks.state_is_json, StateWithATuple, "comes back from JSON"),
    (checks.a_resumed_run_continues_the_record, NewIdEachTime, "'id' was"),
    (checks.a_resumed_run_continues_the_record, StartsAfresh, r"steps \[3\] are kept"),
    (checks.nothing_is_sent_over_the_network, PhonesHome, r"connected to 192\.0\.2\.1"),
]


def test_a_good_logger_passes_every_check(trial):
    trial.passes(LoggerSuite, CASE, Good)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_logger_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


def test_a_logger_that_raises_for_an_outcome_is_caught(trial):
    with pytest.raises(ValueError, match="outcome failed"):
        trial(checks.a_whole_run_is_taken, CASE, KnowsOneOutcome)


def test_every_check_catches_something():
    caught = {check for check, _, _ in BROKEN} | {checks.a_whole_run_is_taken}
    assert caught == set(LoggerSuite.checks)


def test_a_logger_whose_record_cannot_be_read_back_is_tried_as_far_as_it_goes(trial):
    case = LoggerCase(use="toy/logger")
    trial.passes(LoggerSuite, case, Good, skips=[checks.what_is_logged_is_kept])
