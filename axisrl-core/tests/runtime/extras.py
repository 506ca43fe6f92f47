"""A local plugin (``--plugin extras.py``): a correction that finds nothing to correct, and an
engine that can score."""

from axisrl.plugins import CorrectionComponent, EngineComponent, hookimpl

FAKES = "axisrl.testing.fakes"


@hookimpl
def axisrl_corrections():
    return [CorrectionComponent(name="agreed", target=f"{__name__}:Agreed")]


@hookimpl
def axisrl_rollout_engines():
    return [
        EngineComponent(
            name="scorer",
            target=f"{FAKES}:ScriptedEngine",
            config=f"{FAKES}:ScriptedEngineConfig",
            transports=("disk",),
            scores=True,
            offloads=True,
        )
    ]


class Agreed:
    """The scripted trainer computes no loss, so nobody asks it."""

    level = "token"

    def __init__(self, config, context):
        pass
