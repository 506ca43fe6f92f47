"""Run folders as small as they can be and still be judged."""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import save, save_file

from axisrl.runtime.spans import DRIVER, Span, SpanLog

UPDATES, GROUPS, SIZE = 3, 2, 2


def rollout(group, member, **summary):
    whole = {"id": f"train-{group:06d}-{member:03d}", "group": group, "member": member}
    return whole | {"reward": 1.0, "seconds": 0.5, **summary}


class Folder:
    """A run of 3 updates, each of 2 groups of 2 rollouts."""

    def __init__(self, path):
        self.path = path

    def write(self):
        self.metrics([self.line(step) for step in range(UPDATES + 1)])
        for step in range(1, UPDATES + 1):
            groups = range((step - 1) * GROUPS, step * GROUPS)
            self.rollouts(step, [rollout(g, m) for g in groups for m in range(SIZE)])
        trace = save({"ids": np.arange(3)}, metadata={"format": "t", "nodes": "[]"})
        (self.path / "traces").mkdir()
        blob = {"train-000000-000": np.frombuffer(trace, np.uint8)}
        save_file(blob, self.path / "traces" / "step-000001.safetensors")
        self.checkpoint(UPDATES, cursor=UPDATES * GROUPS)
        manifest = {"state": "completed", "created": 100.0, "updated": 110.0}
        (self.path / "manifest.json").write_text(json.dumps(manifest))
        log = SpanLog(self.path / "events.jsonl")
        for step in range(1, UPDATES + 1):
            for at, name in enumerate(("rollout", "train", "sync")):
                log.add(DRIVER, Span(name, 100.0 + step + at / 4, 0.25), step=step)
        log.close()
        return self

    @staticmethod
    def line(step, **values):
        told = {"time": 1e9 + step, "time/train_s": 0.1 * step, "train/tokens_per_s": step}
        return {"step": step, "reward/mean": 0.1 * step, **told, **values}

    def metrics(self, lines):
        self.path.mkdir(parents=True, exist_ok=True)
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (self.path / "metrics.jsonl").write_text(text)

    def rollouts(self, step, summaries, advantage=0.5):
        folder = self.path / "rollouts"
        folder.mkdir(exist_ok=True)
        rows = [{"step": step, "summary": one, "advantage": advantage} for one in summaries]
        text = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / f"step-{step:06d}.jsonl").write_text(text)

    def checkpoint(self, step, weights=0.0, **source):
        folder = self.path / "checkpoints" / f"step-{step:06d}"
        (folder / "trainer").mkdir(parents=True, exist_ok=True)
        tensors = {"w": np.full(2, weights, np.float32), "b": np.zeros(1, np.float64)}
        save_file(tensors, folder / "trainer" / "model.safetensors", metadata={"a": "1", "b": "2"})
        (folder / "state.json").write_text(json.dumps({"source": source}))
        (folder / "COMPLETE").touch()

    def copy(self, name):
        return Folder(shutil.copytree(self.path, self.path.with_name(name)))


@pytest.fixture
def baseline(tmp_path):
    return Folder(tmp_path / "baseline").write()


@pytest.fixture
def run(baseline):
    return baseline.copy("run")
