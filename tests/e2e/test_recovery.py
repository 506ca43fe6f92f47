"""Processes of a run that are killed: the run goes on by itself, and ends as if they never were."""

import pytest

pytest.importorskip("ray")

SMOKE = ("gsm8k/grpo-cpu", "--smoke")
SHORT = ("train.updates=5", "eval=null", "checkpoint.every=2")
KILLER = '''
import os
import signal
from pathlib import Path

from axisrl.plugins import hookimpl

FOLDER = Path({folder!r})
KILLS = {kills!r}


@hookimpl
def axisrl_worker_started(worker):
    (FOLDER / f"{{worker.role}} {{worker.rank}}").write_text(str(worker.pid))


@hookimpl
def axisrl_rollout_finished(event):
    """Kill the newest process of an actor, once that rollout is home for the first time."""
    for actor, rollout in KILLS:
        done = FOLDER / f"{{actor}} killed at {{rollout}}"
        if event.summary.id == rollout and not done.exists():
            done.touch()
            os.kill(int((FOLDER / actor).read_text()), signal.SIGKILL)
'''


@pytest.fixture
def killed(make_run, tmp_path):
    """A run on Ray of which ``kills`` (actor, rollout) are killed when that rollout is home."""

    def make(kills, *overrides):
        (tmp_path / "pids").mkdir()
        plugin = tmp_path / "killer.py"
        plugin.write_text(KILLER.format(folder=str(tmp_path / "pids"), kills=kills))
        started = ("placement=ray", "plugins=[killer]", *overrides)
        return make_run("killed", *SHORT, *started, recipe=(*SMOKE, "--plugin", str(plugin)))

    return make


def test_a_run_whose_every_process_is_killed_once_is_the_run_without_deaths(
    make_run, same_run, killed
):
    inline = make_run("inline", *SHORT)
    inline.whole()
    run = killed(
        [
            ("engine 0", "train-000002-000"),
            ("rollout 0", "train-000006-000"),
            ("trainer 0", "train-000010-000"),
            ("recorder 0", "train-000018-000"),
        ]
    )
    output = run.whole()
    same_run(run, inline)
    assert "engine 0 is replaced" in output
    assert "rollout 0 is replaced" in output
    assert "the run goes back to step-000002: the trainer 0 actor is gone" in output
    last = run.metrics()[-1]
    assert last["recovery/lost_engine"] == last["recovery/lost_rollout"] == 1
    assert last["recovery/lost_checkpoint"] == 2
