"""The engine's promises with SGLang itself, on a CUDA device. Each check starts SGLang anew: run
them side by side (``pytest -n 8``)."""

import importlib.util

import pytest
import torch

from axisrl.testing.engine import EngineSuite
from axisrl_sglang.conformance import CASES

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="needs SGLang"),
]
pytest.importorskip("axisrl_local", reason="needs axisrl-plugin-local's trainer")


class TestEngine(EngineSuite):
    cases = CASES
