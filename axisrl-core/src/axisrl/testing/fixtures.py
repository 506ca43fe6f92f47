"""pytest fixtures for plugins: ``pytest_plugins = ["axisrl.testing.fixtures"]`` in a conftest.py.

Nothing is loaded unless a project asks for it this way: there is no ``pytest11`` entry point.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from axisrl.testing.fakes import CharTokenizer, FakeClock
from axisrl.testing.recorded import recorded_run
from axisrl.types import BuildContext


@pytest.fixture
def fake_clock() -> FakeClock:
    """A clock at 1000 s that moves only by ``advance``."""
    return FakeClock(start=1000.0)


@pytest.fixture
def char_tokenizer() -> CharTokenizer:
    """One token a character, with a chat template."""
    return CharTokenizer()


@pytest.fixture
def build_context(tmp_path: Path, fake_clock: FakeClock) -> BuildContext:
    """What a component's constructor takes beside its config: seed 0, the test's folder, the fake
    clock."""
    return BuildContext(run_dir=tmp_path, clock=fake_clock)


@pytest.fixture
def recorded_run_dir(tmp_path: Path) -> Path:
    """The folder of a small finished run (:func:`axisrl.testing.recorded.recorded_run`)."""
    return recorded_run(tmp_path)
