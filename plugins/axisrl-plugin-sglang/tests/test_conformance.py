"""The engine's promises, with the fake SGLang and the local trainer on a CPU."""

import dataclasses

import pytest

from axisrl.testing.engine import EngineSuite
from axisrl_sglang.conformance import CASES

pytest.importorskip("axisrl_local", reason="needs axisrl-plugin-local's trainer")


@pytest.mark.usefixtures("fake_sglang")
class TestEngine(EngineSuite):
    cases = tuple(
        dataclasses.replace(
            case,
            device="cpu",
            options={"max_context": 256, "hand_over": True},
            tolerance=1e-4,
        )
        for case in CASES[1:]
    )
