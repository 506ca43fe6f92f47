"""A local plugin (``--plugin shelf.py``): a service, and an env, a verifier and a reward that call
it."""

import asyncio
import os
from dataclasses import dataclass

from axisrl.config.base import Config
from axisrl.plugins import (
    EnvComponent,
    RewardComponent,
    ServiceComponent,
    VerifierComponent,
    hookimpl,
)
from axisrl.types import Message, Observation, RewardResult, StepResult, Verdict


@hookimpl
def axisrl_services():
    config = f"{__name__}:ShelfConfig"
    return [ServiceComponent(name="shelf", target=f"{__name__}:Shelf", config=config)]


@hookimpl
def axisrl_envs():
    asks = f"{__name__}:AsksConfig"
    return [EnvComponent(name="asks", target=f"{__name__}:Asks", config=asks)]


@hookimpl
def axisrl_verifiers():
    return [VerifierComponent(name="asks", target=f"{__name__}:AskingVerifier")]


@hookimpl
def axisrl_rewards():
    return [RewardComponent(name="asks", target=f"{__name__}:AskingReward")]


@dataclass(frozen=True, kw_only=True, slots=True)
class ShelfConfig(Config):
    books: tuple[str, ...] = ("axis", "reel")


class Shelf:
    def __init__(self, config, context):
        self._config, self._books = config, ()

    async def start(self):
        if not self._config.books:
            raise OSError("no shelf")
        self._books = self._config.books

    async def find(self, letter, least=0):
        return [book for book in self._books if book.startswith(letter)][least:]

    async def where(self):
        return os.getpid()

    async def drop(self):
        raise KeyError("broken spine")

    async def hang(self):
        await asyncio.Event().wait()

    async def exit(self):
        os._exit(9)

    def _hidden(self):
        pass

    async def stop(self):
        self._books = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class AsksConfig(Config):
    method: str = "find"
    timeout_s: float = 60.0


class Asks:
    """Asks the shelf before the first turn and shows what it answers."""

    def __init__(self, config, context):
        self._config, self._shelf = config, context.services["shelf"]

    async def reset(self, task):
        args = ("a",) if self._config.method == "find" else ()
        asked = self._shelf.call(self._config.method, *args, timeout_s=self._config.timeout_s)
        return Observation(messages=(Message(role="user", content=f"Say 2. {await asked}"),))

    async def step(self, action):
        return StepResult(done=True)

    async def close(self):
        pass


class AskingVerifier:
    def __init__(self, config, context):
        self._shelf = context.services["shelf"]

    async def verify(self, task, rollout):
        found = await self._shelf.call("find", "r")
        return Verdict(score=float(len(found)), passed=True, detail=found[0])


class AskingReward:
    def __init__(self, config, context):
        self._shelf = context.services["shelf"]

    async def __call__(self, rollout, verdicts):
        found = await self._shelf.call("find", letter="", least=1)
        return RewardResult(total=10.0 + len(found))
