"""A run is started again when its driver was killed on purpose, and at no other end."""

import json
import os
import sys

import pytest

from axisrl.chaos.runner import Command, Runner
from axisrl.runtime.faults import Fault, read_plan

PROGRAM = """
import json, os, signal, sys, time
from pathlib import Path

words = sys.argv[1:]
plan = Path(words[words.index("--faults") + 1])
notes = plan.with_suffix(".notes")
with notes.open("a") as file:
    file.write(json.dumps(words) + "\\n")
start = len(notes.read_text().splitlines())
print("start", start, flush=True)


def save(run_dir):
    folder = Path(run_dir) / "checkpoints" / "step-000001"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "COMPLETE").touch()


def die(victim):
    fault = {"step": start, "phase": "train", "edge": "before", "target": victim}
    with plan.with_suffix(".jsonl").open("a") as file:
        file.write(json.dumps({**fault, "victim": victim}) + "\\n")
    os.kill(os.getpid(), signal.SIGKILL)


BODY
"""


@pytest.fixture
def runner(tmp_path):
    """A runner whose ``axisrl run`` is a few lines of Python."""

    def make(body, faults=()):
        program = tmp_path / "program.py"
        program.write_text(PROGRAM.replace("BODY", body))
        command = Command(
            words=["recipe", "a=1"],
            options=["--plugin", "p"],
            environ=os.environ,
            program=[sys.executable, str(program)],
        )
        return Runner(command, tmp_path / "run", faults)

    return make


def starts(tmp_path):
    return [json.loads(line) for line in (tmp_path / "run.notes").read_text().splitlines()]


def test_a_run_that_completes_is_started_once_with_its_plan(runner, tmp_path):
    fault = Fault(step=1, phase="train", edge="after")
    ending = runner("", [fault]).run(60)
    assert (ending.completed, ending.starts) == (True, 1)
    (words,) = starts(tmp_path)
    assert words[:4] == ["recipe", "a=1", "--run-dir", str(tmp_path / "run")]
    assert words[4:] == ["--plugin", "p", "--plain", "--faults", str(tmp_path / "run.json")]
    assert read_plan(tmp_path / "run.json").faults == [fault]


def test_a_killed_driver_goes_on_from_its_checkpoint_or_anew_without_one(runner, tmp_path):
    body = f'if start == 2: save({str(tmp_path / "run")!r})\nif start < 4: die("driver")'
    ending = runner(body).run(60)
    assert (ending.completed, ending.starts) == (True, 4)
    first, second, third, fourth = starts(tmp_path)
    assert "--overwrite" not in first and "--resume" not in first
    assert second == [*first[:4], "--overwrite", *first[4:]]
    assert third[:2] == fourth[:2] == [str(tmp_path / "run"), "--resume"]
    assert third[2:4] == ["--plugin", "p"]


def test_a_driver_that_dies_of_something_else_is_an_error_with_what_it_said(runner):
    ending = runner("print('no budget'); sys.exit(1)").run(60)
    assert not ending.completed
    assert ending.starts == 1
    assert ending.error == "exit code 1: start 1\nno budget"


def test_a_driver_that_is_killed_by_nobody_of_ours_is_an_error(runner):
    ending = runner("os.kill(os.getpid(), signal.SIGKILL)").run(60)
    assert ending.error.startswith("exit code -9")


def test_a_run_that_is_not_over_at_its_limit_is_ended_and_hung(runner):
    ending = runner("time.sleep(600)").run(0.5)
    assert ending.hung
    assert not ending.completed
    assert ending.seconds < 60
