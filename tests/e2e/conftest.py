"""Real runs of the smoke recipe, started the way a user starts them: the ``axisrl`` command in its
own process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from axisrl.cli import INTERRUPTED

SMOKE = ("gsm8k/grpo-cpu", "--smoke")
LIMIT_S = 300


class Warm:
    """Starts ``axisrl`` commands from a process that has torch imported (``warm.py``)."""

    def __init__(self):
        script = Path(__file__).with_name("warm.py")
        self._server = subprocess.Popen(
            [sys.executable, str(script)],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, *request):
        self._server.stdin.write(json.dumps(request) + "\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline()
        assert answer, f"warm.py ended with {self._server.wait(timeout=LIMIT_S)}; see its stderr"
        return json.loads(answer)

    def close(self):
        self._server.stdin.close()
        self._server.stdout.close()
        self._server.wait(timeout=LIMIT_S)


class Command:
    """One ``axisrl`` command that is running."""

    def __init__(self, warm, arguments, environment, output):
        self._warm, self._output = warm, output
        self._code = None
        self._pid = warm.ask("start", list(arguments), environment, str(output))

    def poll(self):
        """Exit code once it has ended, as often as it is asked for."""
        if self._code is None:
            self._code = self._warm.ask("poll", self._pid)
        return self._code

    def kill(self):
        os.kill(self._pid, signal.SIGKILL)

    def stop(self):
        os.kill(self._pid, signal.SIGTERM)

    def wait(self):
        """Exit code (negative: the signal that ended it) and everything it wrote."""
        deadline = time.monotonic() + LIMIT_S
        while (code := self.poll()) is None:
            if time.monotonic() > deadline:
                self.kill()
            time.sleep(0.01)
        return code, self._output.read_text()


class Run:
    """One run folder and the commands that fill it."""

    def __init__(self, warm, folder, recipe, overrides):
        self._warm = warm
        self.dir = Path(folder)
        self.recipe = recipe
        self.overrides = overrides

    def start(self, *arguments):
        return Command(
            self._warm,
            ("run", *arguments, "--plain"),
            {"AXISRL_OUTPUT_DIR": str(self.dir.parent)},
            self.dir.with_suffix(".out"),
        )

    def whole(self):
        """The run from its beginning to its end; what it wrote."""
        return self._finish(self._fresh())

    def whole_but(self, after, happens):
        """The whole run; something ``happens`` once the step ``after`` is in the metrics."""
        command = self._fresh()
        self._goes_on_until(lambda: after in self.steps(), command)
        happens()
        return self._finish(command)

    def until(self, reached):
        """Start, and stop as a user would once that is ``reached``."""
        command = self._fresh()
        if self._goes_on_until(lambda: self.steps() and reached(), command):
            command.stop()
        code, output = command.wait()
        assert code == INTERRUPTED, f"it was not reached before the end: {output[-2000:]}"

    def refused(self):
        """What a run says that ends with an error."""
        code, output = self._fresh().wait()
        assert code > 0, output[-2000:]
        return output

    def kill_after(self, step):
        """Start, and kill -9 as soon as ``step`` is in the metrics."""
        self._kill(self._fresh(), step)

    def resume_until(self, step):
        """Resume, and kill -9 again."""
        self._kill(self.start(str(self.dir), "--resume"), step)

    def kill_at(self, step, edge, phase):
        """Start, or go on with what an earlier kill left, and kill -9 from within at that point."""
        plan = self.dir.with_suffix(".json")
        plan.write_text(json.dumps([{"step": step, "phase": phase, "edge": edge}]))
        code, output = self._again("--faults", str(plan)).wait()
        assert code == -signal.SIGKILL, output[-2000:]

    def go_on(self):
        """To the end: from the newest checkpoint, or anew where there is none."""
        return self._finish(self._again())

    def wait_until_nobody_is_left(self, limit_s=20.0):
        """Processes that the run started, directly or not, have its folder in their environment.
        Ray's own two agents hold nothing of it, and give a dead cluster up after a minute."""
        deadline = time.monotonic() + limit_s
        while left := self._processes():
            assert time.monotonic() < deadline, f"still there after {limit_s:g} s: {left}"
            time.sleep(0.05)

    def _processes(self):
        mark, found = f"AXISRL_OUTPUT_DIR={self.dir.parent}".encode(), []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                if mark not in (process / "environ").read_bytes().split(b"\0"):
                    continue
                name = (process / "comm").read_text().strip()
                if name not in ("ray::DashboardA", "ray::RuntimeEnv"):
                    found.append((process.name, name))
            except OSError:
                continue  # it ended meanwhile, or is somebody else's
        return found

    def left_in_memory(self):
        """Folders of arrays in /dev/shm that are this run's."""
        from axisrl.builtin.handles import run_key

        return list(Path("/dev/shm").glob(f"axisrl-handles-*-{run_key(self.dir)}"))

    def _again(self, *arguments):
        if any((self.dir / "checkpoints").glob("step-*/COMPLETE")):
            return self.start(str(self.dir), "--resume", *arguments)
        return self._fresh("--overwrite", *arguments)

    def _goes_on_until(self, reached, command):
        """Whether the command still runs once that is ``reached``."""
        while (goes_on := command.poll() is None) and not reached():
            time.sleep(0.005)
        return goes_on

    def _kill(self, command, step):
        if self._goes_on_until(lambda: step in self.steps(), command):
            command.kill()
        code, output = command.wait()
        assert code == -signal.SIGKILL, f"ended before it could be killed: {output[-2000:]}"

    def resume(self):
        return self._finish(self.start(str(self.dir), "--resume"))

    def steps(self):
        path = self.dir / "metrics.jsonl"
        return [line["step"] for line in self.metrics()] if path.exists() else []

    def metrics(self):
        lines = (self.dir / "metrics.jsonl").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def series(self, name):
        """Every value of one metric, in order."""
        return [line[name] for line in self.metrics() if name in line]

    def untimed(self):
        theirs = ("time", "system/", "recovery/")
        return [
            {k: v for k, v in m.items() if not k.startswith(theirs) and not k.endswith("_per_s")}
            for m in self.metrics()
        ]

    def rollouts(self):
        """Every row of every step, without what the clock decides."""
        rows = {}
        for path in sorted((self.dir / "rollouts").glob("*.jsonl")):
            rows[path.name] = [json.loads(line) for line in path.read_text().splitlines()]
            for row in rows[path.name]:
                del row["summary"]["seconds"]
        return rows

    def traces(self):
        """Every training rollout's trace: step, rollout -> node by node kind, tokens,
        log-probabilities and versions."""
        from safetensors.numpy import load_file

        from axisrl.trace import Trace

        return {
            (path.stem, rollout): [_node(node) for node in Trace.from_bytes(blob.tobytes())]
            for path in sorted((self.dir / "traces").glob("*.safetensors"))
            for rollout, blob in load_file(path).items()
        }

    @property
    def checkpoint(self):
        return max((self.dir / "checkpoints").glob("step-*"))

    def state(self):
        return json.loads((self.checkpoint / "state.json").read_text())

    def models(self):
        """Folders of the newest checkpoint that hold a model."""
        return {path.name for path in self.checkpoint.iterdir() if path.is_dir()}

    def final_weights(self):
        """Every tensor of the newest checkpoint: policy, value model, reference, optimizers."""
        from safetensors.torch import load_file

        return {
            f"{path.relative_to(self.checkpoint)}/{name}": tensor
            for path in sorted(self.checkpoint.rglob("*.safetensors"))
            for name, tensor in load_file(path).items()
        }

    def _fresh(self, *arguments):
        return self.start(*self.recipe, "--run-dir", str(self.dir), *self.overrides, *arguments)

    def _finish(self, command):
        code, output = command.wait()
        assert code == 0, output[-2000:]
        return output


def _node(node):
    arrays = (node.ids, node.logprobs, node.versions)
    return node.kind, *(None if array is None else array.tolist() for array in arrays)


def assert_same_run(one, other):
    """Same metrics, rollouts, tokens, and every bit of every saved model and optimizer."""
    import torch

    assert one.untimed() == other.untimed()
    assert one.rollouts() == other.rollouts()
    assert one.traces() == other.traces()
    assert one.models() == other.models()
    mine, theirs = one.final_weights(), other.final_weights()
    assert mine.keys() == theirs.keys()
    assert [name for name in mine if not torch.equal(mine[name], theirs[name])] == []


@pytest.fixture(scope="session")
def warm():
    server = Warm()
    yield server
    server.close()


@pytest.fixture
def command(tmp_path, warm):
    """Starts any ``axisrl`` command; its output goes to ``out`` in the test's folder."""

    def start(*arguments):
        environment = {"AXISRL_OUTPUT_DIR": str(tmp_path)}
        return Command(warm, arguments, environment, tmp_path / "out")

    return start


@pytest.fixture
def make_run(tmp_path, warm):
    def make(name, *overrides, recipe=SMOKE):
        return Run(warm, tmp_path / name, recipe, overrides)

    return make


@pytest.fixture(scope="module")
def make_shared_run(tmp_path_factory, warm):
    """As ``make_run``, for a run that several tests of a module look at."""

    def make(name, *overrides, recipe=SMOKE):
        return Run(warm, tmp_path_factory.mktemp("shared") / name, recipe, overrides)

    return make


@pytest.fixture(scope="session")
def same_run():
    return assert_same_run
