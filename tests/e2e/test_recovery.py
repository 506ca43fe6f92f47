"""Processes of a run that are killed: the run goes on by itself, and ends as if they never were."""

import os
import signal

import pytest

pytest.importorskip("ray")

SMOKE = ("gsm8k/grpo-cpu", "--smoke")
SHORT = ("train.updates=5", "eval=null", "checkpoint.every=2")
KILLER = '''
import os
from pathlib import Path

from axisrl.plugins import hookimpl

FOLDER = Path({folder!r})
KILLS = {kills!r}


@hookimpl
def axisrl_worker_started(worker):
    (FOLDER / f"{{worker.role}} {{worker.rank}}").write_text(str(worker.pid))


@hookimpl
def axisrl_rollout_finished(event):
    """Signal the newest process of an actor, once that rollout is home for the first time."""
    for number, actor, rollout in KILLS:
        done = FOLDER / f"{{actor}} hit at {{rollout}}"
        if event.summary.id == rollout and not done.exists():
            done.touch()
            os.kill(int((FOLDER / actor).read_text()), number)
'''


@pytest.fixture(scope="module")
def inline(make_shared_run):
    """The run that nobody killed."""
    run = make_shared_run("inline", *SHORT)
    run.whole()
    return run


@pytest.fixture
def killed(make_run, tmp_path):
    """A run on Ray of which ``kills`` (signal, actor, rollout) are hit once that rollout is
    home."""

    def make(kills, *overrides):
        (tmp_path / "pids").mkdir()
        plugin = tmp_path / "killer.py"
        numbered = [(int(number), *what) for number, *what in kills]
        plugin.write_text(KILLER.format(folder=str(tmp_path / "pids"), kills=numbered))
        started = ("placement=ray", "plugins=[killer]", *overrides)
        return make_run("killed", *SHORT, *started, recipe=(*SMOKE, "--plugin", str(plugin)))

    return make


def test_a_run_whose_every_process_is_killed_once_is_the_run_without_deaths(
    inline, same_run, killed
):
    run = killed(
        [
            (signal.SIGKILL, "engine 0", "train-000002-000"),
            (signal.SIGKILL, "rollout 0", "train-000006-000"),
            (signal.SIGKILL, "trainer 0", "train-000010-000"),
            (signal.SIGKILL, "recorder 0", "train-000018-000"),
        ]
    )
    output = run.whole()
    same_run(run, inline)
    assert "engine 0 is replaced" in output
    assert "rollout 0 is replaced" in output
    assert "the run goes back to step-000002: the trainer 0 actor is gone" in output
    last = run.metrics()[-1]
    assert last["recovery/replaced_engine"] == last["recovery/replaced_rollout"] == 1
    assert last["recovery/rewinds"] == 2


def test_an_engine_that_is_killed_gets_the_weights_that_were_sent_to_the_others(
    inline, same_run, killed
):
    sent = ("trainer.transport=nccl", "placement.engines=2")
    run = killed([(signal.SIGKILL, "engine 1", "train-000010-000")], *sent)
    output = run.whole()
    same_run(run, inline)
    assert "engine 1 is replaced" in output
    assert run.metrics()[-1].get("recovery/rewinds", 0) == 0


def test_processes_that_stop_answering_are_ended_and_the_run_goes_on(
    inline, same_run, killed, tmp_path
):
    run = killed(
        [
            (signal.SIGSTOP, "engine 0", "train-000002-000"),
            (signal.SIGSTOP, "trainer 0", "train-000010-000"),
        ],
        "placement.lease_s=5",
    )
    output = run.whole()
    same_run(run, inline)
    assert "engine 0 is replaced: engine 0 did not answer for placement.lease_s 5 s" in output
    assert "goes back to step-000002: trainer 0 did not answer for placement.lease_s 5" in output
    pids = [int((tmp_path / "pids" / actor).read_text()) for actor in ("engine 0", "trainer 0")]
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)
