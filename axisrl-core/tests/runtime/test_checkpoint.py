import asyncio
import contextlib
import itertools
import json
import logging
import os

import pytest

from axisrl.errors import CheckpointError, EnvironmentProblem
from axisrl.runtime.checkpoint import RunState, latest, read_state, save_checkpoint


class Trainer:
    async def call(self, method, path):
        assert method == "save"
        (path / "weights").write_text("w")


class Dying(Trainer):
    async def call(self, method, path):
        await super().call(method, path)
        raise OSError("disk full")


def save(run_dir, step, trainer=None, keep=2, **fields):
    state = RunState(step=step, **fields)
    models = {"trainer": trainer or Trainer()}
    return asyncio.run(save_checkpoint(run_dir, state, models, keep=keep))


def test_what_is_saved_is_read_back(tmp_path):
    loggers = {"core/wandb": {"id": "x"}}
    state = {"version": 3, "source": {"cursor": 24}, "pending": None, "loggers": loggers}
    path = save(tmp_path, 12, **state)
    assert path.name == "step-000012"
    assert (path / "trainer" / "weights").read_text() == "w"
    assert read_state(path) == RunState(step=12, **state)
    assert latest(tmp_path) == path


def test_every_model_has_its_own_folder(tmp_path):
    models = {"trainer": Trainer(), "value": Trainer()}
    path = asyncio.run(save_checkpoint(tmp_path, RunState(step=1), models, keep=1))
    assert (path / "trainer" / "weights").exists()
    assert (path / "value" / "weights").exists()


def test_only_the_newest_are_kept(tmp_path):
    for step in (1, 2, 3, 4):
        save(tmp_path, step)
    assert sorted(p.name for p in (tmp_path / "checkpoints").iterdir()) == [
        "step-000003",
        "step-000004",
    ]


def test_a_failed_save_leaves_the_previous_checkpoint(tmp_path):
    before = save(tmp_path, 1)
    with pytest.raises(EnvironmentProblem, match=r"step 2 cannot be saved in .*: disk full"):
        save(tmp_path, 2, Dying())
    assert latest(tmp_path) == before


def test_an_unfinished_checkpoint_is_named_and_ignored(tmp_path, caplog):
    before = save(tmp_path, 1)
    (save(tmp_path, 2) / "COMPLETE").unlink()
    with caplog.at_level(logging.WARNING):
        assert latest(tmp_path) == before
    assert "step-000002 is unfinished" in caplog.text


def test_the_same_step_can_be_saved_again(tmp_path):
    save(tmp_path, 1, tokens=1)
    save(tmp_path, 1, tokens=2)
    assert read_state(latest(tmp_path)).tokens == 2


class Killed(BaseException):
    """Stands for a kill: no handler of ``Exception`` sees it."""


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("keep", [1, 2])
def test_a_kill_at_any_moment_of_a_save_leaves_a_checkpoint_that_loads(
    tmp_path, monkeypatch, keep, again
):
    """``again``: the step is saved a second time, with another state."""
    moments = ("replace", "fsync", "unlink", "rmdir", "mkdir", "open")
    for fatal in range(1000):
        run_dir = tmp_path / str(fatal)
        save(run_dir, 1, tokens=1)
        step = 1 if again else 2
        with monkeypatch.context() as patched:
            calls = itertools.count()
            for name in moments:
                patched.setattr(os, name, killing(getattr(os, name), calls, fatal))
            try:
                save(run_dir, step, tokens=2, keep=keep)
            except Killed:
                pass
            else:
                break
        state = read_state(latest(run_dir))
        assert (state.step, state.tokens) in ((1, 1), (step, 2))
    assert fatal > 3
    assert read_state(latest(run_dir)).tokens == 2


def killing(real, calls, fatal):
    def call(*args, **kwargs):
        if next(calls) == fatal:
            raise Killed
        return real(*args, **kwargs)

    return call


def test_steps_of_seven_digits_are_newer_than_those_of_six(tmp_path):
    save(tmp_path, 999_999)
    save(tmp_path, 1_000_000)
    assert latest(tmp_path).name == "step-1000000"


def test_a_run_without_checkpoints_has_no_latest(tmp_path):
    assert latest(tmp_path) is None


def test_a_damaged_state_is_one_clear_error(tmp_path):
    path = save(tmp_path, 1)
    (path / "state.json").write_text(json.dumps({"unknown": 1}))
    with pytest.raises(CheckpointError, match="step-000001 cannot be read"):
        read_state(path)


def test_the_parts_of_a_save_are_phases_in_order(tmp_path):
    heard = []

    @contextlib.contextmanager
    def phase(name):
        found = sorted(p.name for p in (tmp_path / "checkpoints").glob("*/[Cs]*"))
        heard.append((name, found))
        yield

    models = {"trainer": Trainer()}
    asyncio.run(save_checkpoint(tmp_path, RunState(step=1), models, keep=1, phase=phase))
    assert heard == [
        ("checkpoint write", []),
        ("checkpoint rename", ["state.json"]),
        ("checkpoint mark", ["state.json"]),
    ]
    assert latest(tmp_path).name == "step-000001"
