"""The fake SGLang where the real one would be, for this process and the ones it starts."""

import asyncio
import os
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from axisrl.types import BuildContext, ModelSpec
from axisrl_sglang.config import EngineConfig

FAKE = Path(__file__).parent / "fake"


@pytest.fixture
def fake_sglang(monkeypatch):
    """``sglang`` is the fake."""
    monkeypatch.syspath_prepend(str(FAKE))
    paths = [str(FAKE), *os.environ.get("PYTHONPATH", "").split(os.pathsep)]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in [name for name in sys.modules if name.partition(".")[0] == "sglang"]:
        monkeypatch.delitem(sys.modules, name)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory) -> ModelSpec:
    """The tiny model of the local plugin."""
    source = pytest.importorskip("axisrl_local.tiny", reason="needs axisrl-plugin-local")
    from axisrl.config.base import NoConfig

    folder = tmp_path_factory.mktemp("models")
    path = source.TinyModel(NoConfig(), BuildContext(run_dir=folder)).fetch(folder)
    return ModelSpec(name="local/tiny", path=path)


@pytest.fixture
def serving(fake_sglang, tiny, tmp_path):
    """``serving(test, **options)`` runs the coroutine ``test(engine)`` on a started engine."""
    from axisrl_sglang.engine import SglangEngine

    @asynccontextmanager
    async def started(options):
        engine = SglangEngine(EngineConfig(**options), BuildContext(run_dir=tmp_path, seed=3))
        await engine.start(tiny)
        try:
            yield engine
        finally:
            await engine.stop()

    def run(test, **options):
        async def whole():
            async with started(options) as engine, asyncio.timeout(60):
                return await test(engine)

        return asyncio.run(whole())

    return run
