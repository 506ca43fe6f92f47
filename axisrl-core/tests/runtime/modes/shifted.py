"""A local plugin: the stage's engine, its log-probabilities off by known amounts."""

import dataclasses

import numpy as np

from axisrl.plugins import EngineComponent, hookimpl
from axisrl.testing.fakes import ScriptedEngine

SHIFTS = (0.0, 0.5, -1.0)
"""Of the tokens of every reply, in their order."""


@hookimpl
def axisrl_rollout_engines():
    return [
        EngineComponent(
            name="engine",
            target=f"{__name__}:Shifted",
            config="axisrl.testing.fakes:ScriptedEngineConfig",
        )
    ]


class Shifted(ScriptedEngine):
    """Says ``ok`` and ends its turn: three tokens at most."""

    async def generate(self, request):
        result = await super().generate(request)
        shifts = np.asarray(SHIFTS[: len(result.ids)], np.float32)
        return dataclasses.replace(result, logprobs=result.logprobs + shifts)
