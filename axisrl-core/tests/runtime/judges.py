"""A local plugin (``--plugin judges.py``): rewards that pay, lie or break, and a verifier that
shows what it was given."""

import asyncio
import os
import re
from dataclasses import dataclass
from pathlib import Path

from axisrl.config.base import Config
from axisrl.plugins import RewardComponent, VerifierComponent, hookimpl
from axisrl.types import RewardResult, Verdict


@hookimpl
def axisrl_rewards():
    return [
        RewardComponent(name="pays", target=f"{__name__}:Pays", config=f"{__name__}:PaysConfig"),
        RewardComponent(name="breaks", target=f"{__name__}:Breaks"),
        RewardComponent(name="waits", target=f"{__name__}:Waits"),
    ]


@hookimpl
def axisrl_verifiers():
    gate = f"{__name__}:GateConfig"
    return [
        VerifierComponent(name="reads", target=f"{__name__}:Reads"),
        VerifierComponent(name="blocks", target=f"{__name__}:Blocks"),
        VerifierComponent(name="gate", target=f"{__name__}:Gate", config=gate),
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class PaysConfig(Config):
    total: float = 1.0
    per_turn: tuple[float, ...] | None = None


class Pays:
    """What it is told to pay."""

    def __init__(self, config, context):
        self._config = config

    def __call__(self, rollout, verdicts):
        return RewardResult(total=self._config.total, per_turn=self._config.per_turn)


class Breaks:
    """A reward with a bug."""

    def __init__(self, config, context):
        pass

    def __call__(self, rollout, verdicts):
        raise KeyError("rubric")


class Waits:
    """A reward that has to wait."""

    def __init__(self, config, context):
        pass

    async def __call__(self, rollout, verdicts):
        await asyncio.sleep(0.05)
        return RewardResult(total=0.5)


class Reads:
    """Passes on a variable of its process's environment."""

    def __init__(self, config, context):
        self._environ = context.services["environ"]

    async def verify(self, task, rollout):
        return Verdict(score=1.0, passed=True, detail=self._environ.get("JUDGE_KEY", ""))


class Blocks:
    """Backtracks for ages in C code, and holds the interpreter meanwhile."""

    def __init__(self, config, context):
        pass

    async def verify(self, task, rollout):
        re.match(r"(a+)+$", "a" * 60 + "b")


@dataclass(frozen=True, kw_only=True, slots=True)
class GateConfig(Config):
    folder: str


class Gate:
    """Says in ``folder`` which process judges, and goes on once the file ``open`` is there."""

    def __init__(self, config, context):
        self._folder = Path(config.folder)

    async def verify(self, task, rollout):
        (self._folder / f"{os.getpid()}.pid").touch()
        while not (self._folder / "open").exists():
            await asyncio.sleep(0.01)
        return Verdict(score=1.0, passed=True)
