"""The engine's promises with SGLang itself, on a CUDA device. SGLang takes most of a minute to
start: one process serves all checks of a case, its first weights put back before each.
"""

import asyncio
import dataclasses
import importlib.util
import inspect

import pytest
import torch
from safetensors.torch import load_file

from axisrl.ops.checksum import weights_checksum
from axisrl.testing.components import build_component
from axisrl.testing.engine import EngineSuite
from axisrl.testing.harness import CheckSkipped
from axisrl_sglang.conformance import CASES
from axisrl_sglang.engine import SglangEngine
from axisrl_sglang.messages import Weights

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="needs SGLang"),
]
pytest.importorskip("axisrl_local", reason="needs axisrl-plugin-local's trainer")


class Kept(SglangEngine):
    """Starts where the engine before it stopped."""

    served = None

    async def start(self, model):
        if Kept.served is None:
            await super().start(model)
            Kept.served = self._served
            return
        self._served = Kept.served
        self._open.set()
        path = model.path / "model.safetensors"
        checksum = weights_checksum(load_file(path))
        weights = Weights(0, "disk", str(path), checksum, True)
        assert not any(r.problem for r in await self._served.process.call("update", weights))

    async def stop(self):
        if self._served is not None:
            await self.abort()
            if self._away:
                await self.reload(sorted(self._away))
            self._served = None


def kept(ref, context):
    if ref.kind != "engine":
        return build_component(ref, context)
    made = build_component(ref, context)
    return Kept(made._config, context)


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    if Kept.served is not None:
        loop.run_until_complete(Kept.served.process.stop(60))
    loop.close()


class TestEngine(EngineSuite):
    cases = CASES

    def test_promise(self, case, check, tmp_path, loop):
        subject = dataclasses.replace(self.subject(case, tmp_path), builder=kept)
        try:
            done = check(subject)
            if inspect.isawaitable(done):
                loop.run_until_complete(asyncio.wait_for(done, case.limit_s))
        except CheckSkipped as reason:
            pytest.skip(str(reason))
