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


class Run:
    """One run folder and the commands that fill it."""

    def __init__(self, folder, *overrides):
        self.dir = Path(folder)
        self.overrides = overrides

    def start(self, *arguments):
        command = [sys.executable, "-m", "axisrl", "run", *arguments, "--plain"]
        environment = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "AXISRL_OUTPUT_DIR": str(self.dir.parent),
        }
        return subprocess.Popen(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def whole(self):
        return self._finish(self._fresh())

    def kill_after(self, step):
        """Start, and kill -9 as soon as ``step`` is in the metrics."""
        self._kill(self._fresh(), step)

    def resume_until(self, step):
        """Resume, and kill -9 again."""
        self._kill(self.start(str(self.dir), "--resume"), step)

    def _kill(self, process, step):
        while process.poll() is None and step not in self.steps():
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        output, _ = process.communicate()
        assert process.returncode == -signal.SIGKILL, f"ended before it could be killed: {output}"

    def resume(self):
        return self._finish(self.start(str(self.dir), "--resume"))

    def steps(self):
        path = self.dir / "metrics.jsonl"
        return [line["step"] for line in self.metrics()] if path.exists() else []

    def metrics(self):
        lines = (self.dir / "metrics.jsonl").read_text().splitlines(keepends=True)
        return [json.loads(line) for line in lines if line.endswith("\n")]

    def untimed(self):
        return [
            {k: v for k, v in m.items() if not k.startswith("time") and not k.endswith("_per_s")}
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

    def final_weights(self):
        from safetensors.torch import load_file

        newest = max((self.dir / "checkpoints").glob("step-*"))
        return {
            f"{path.parent.name}/{path.name}/{name}": tensor
            for path in sorted((newest / "trainer").rglob("*.safetensors"))
            for name, tensor in load_file(path).items()
        }

    def _fresh(self):
        return self.start("gsm8k/grpo-cpu", "--smoke", "--run-dir", str(self.dir), *self.overrides)

    def _finish(self, process):
        output, _ = process.communicate(timeout=300)
        assert process.returncode == 0, output
        return output


@pytest.fixture
def make_run(tmp_path):
    def make(name, *overrides):
        return Run(tmp_path / name, *overrides)

    return make
