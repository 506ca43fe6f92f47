"""Fixtures: a context, and finished rollouts made from text."""

from pathlib import Path

import pytest

from axisrl.protocols import Rollout
from axisrl.trace import Trace
from axisrl.types import BuildContext, Message, Outcome, Task


@pytest.fixture
def context(tmp_path):
    return BuildContext(run_dir=tmp_path)


@pytest.fixture
def rollout_of():
    """Makes the rollout of a task in which the policy said ``text`` (None: it never spoke)."""

    def make(text, task=None):
        task = task or Task(id="t", data={"question": "?", "answer": "#### 18"})
        said = () if text is None else (Message(role="assistant", content=text),)
        return Rollout(
            id="r",
            task=task,
            member=0,
            outcome=Outcome.COMPLETED,
            messages=(Message(role="user", content="#### 999"), *said),
            trace=Trace(),
            turns=len(said),
        )

    return make


@pytest.fixture(scope="session")
def gsm8k_folder():
    """The whole of GSM8K, beside the repository."""
    folder = Path(__file__).parents[4] / "shared" / "data" / "gsm8k"
    if not (folder / "train.jsonl").is_file():
        pytest.skip("GSM8K is not in ../shared/data/gsm8k")
    return folder


@pytest.fixture
def fixture_file():
    """Three rows in GSM8K's format, written for these tests."""
    return Path(__file__).parent / "fixtures" / "train.jsonl"
