import asyncio
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from axisrl.plugins.events import RunInfo
from axisrl.protocols.verifier import Rollout
from axisrl.trace import Trace
from axisrl.types import (
    BuildContext,
    GenerateResult,
    Message,
    Outcome,
    RolloutRow,
    RolloutSummary,
    SamplingParams,
    Task,
)


@dataclass
class FileClock:
    """A clock that every process can read and a test can set."""

    path: Path

    def __call__(self) -> float:
        return float(self.path.read_text())

    def advance(self, seconds: float) -> None:
        later = self.path.with_suffix(".later")
        later.write_text(str(self() + seconds))
        later.replace(self.path)


@pytest.fixture(scope="session")
def clock_file(tmp_path_factory):
    return tmp_path_factory.mktemp("clock") / "now"


@pytest.fixture
def clock(clock_file):
    clock_file.write_text("1000.0")
    return FileClock(clock_file)


@pytest.fixture
def context(tmp_path, clock):
    return BuildContext(run_dir=tmp_path / "run", clock=clock)


@pytest.fixture(scope="session")
def ray_stores(local_ray, tmp_path_factory, clock_file):
    """Ray stores of one run for many tests: making its actors takes seconds."""
    from axisrl.builtin.ray_handles import RayHandleStore
    from axisrl.config.base import NoConfig

    kept = []

    def make():
        if not kept or kept[0]._closed:
            run_dir = tmp_path_factory.mktemp("run")
            context = BuildContext(run_dir=run_dir, clock=FileClock(clock_file))
            kept[:] = [RayHandleStore(NoConfig(), context)]
        return kept[0]

    yield make
    asyncio.run(kept[0].close())


@pytest.fixture(params=["memory", "shm", "ray"])
def store(request, tmp_path, context):
    from axisrl.builtin.config import SharedMemoryConfig
    from axisrl.builtin.memory_handles import MemoryHandleStore
    from axisrl.builtin.shm_handles import SharedMemoryHandleStore
    from axisrl.config.base import NoConfig

    if request.param == "memory":
        made = MemoryHandleStore(NoConfig(), context)
    elif request.param == "shm":
        made = SharedMemoryHandleStore(SharedMemoryConfig(folder=str(tmp_path)), context)
    else:
        made = request.getfixturevalue("ray_stores")()
    yield made
    if request.param != "ray":
        asyncio.run(made.close())
        return
    for owner in ("worker-0", "worker-1", "worker-2", "worker-10"):
        asyncio.run(made.release_owner(owner))


@pytest.fixture
def run_info(tmp_path):
    """``run_info(resumed_from=...)``: a run of three updates in a folder of its own."""
    (tmp_path / "run").mkdir()

    def make(**changes):
        fields = {"name": "demo", "recipe": "a/b", "run_dir": tmp_path / "run", "seed": 0}
        return RunInfo(**(fields | {"config": {"train": {"updates": 3}}} | changes))

    return make


@pytest.fixture
def make_row():
    """``make_row(...)``: a rollout of one question and one answer."""

    def make(step=1, member=0, reward=1.0, answer="4", question="2+2?", **changes):
        summary = RolloutSummary(
            id=f"{step}-{member}",
            task_id="task-7",
            group=0,
            member=member,
            outcome=Outcome.COMPLETED,
            reward=reward,
            **changes,
        )
        messages = (
            Message(role="user", content=question),
            Message(role="assistant", content=answer),
        )
        return RolloutRow(step=step, summary=summary, messages=messages)

    return make


@pytest.fixture
def rollout_of_tokens():
    """``rollout_of_tokens(3, 2)``: a rollout in which the policy sampled 3, then 2 tokens; what it
    was shown does not count."""

    def make(*turns):
        trace = Trace()
        last = trace.append("prompt", np.ones(50), parent=None)
        for count in filter(None, turns):
            result = GenerateResult(
                ids=np.ones(count, np.int32),
                logprobs=np.zeros(count, np.float32),
                versions=np.zeros(count, np.int32),
                finish_reason="stop",
            )
            last = trace.append_sampled(result, parent=last, sampling=SamplingParams(), seed=0)
            last = trace.append("observation", np.ones(70), parent=last)
        return Rollout(
            id="r",
            task=Task(id="t", data={}),
            member=0,
            outcome=Outcome.COMPLETED,
            messages=(),
            trace=trace,
            turns=len(turns),
        )

    return make
