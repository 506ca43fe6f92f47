"""A local plugin (``--plugin stage.py``) that puts the fakes of axisrl.testing on stage, and some
troublemakers."""

import asyncio
import os
from dataclasses import dataclass

import numpy as np

from axisrl.config.base import Config
from axisrl.errors import ConfigError
from axisrl.plugins import (
    AdvantageComponent,
    ConfigProblem,
    DatasetComponent,
    EngineComponent,
    EnvComponent,
    LossComponent,
    TrainerComponent,
    VerifierComponent,
    hookimpl,
)
from axisrl.testing.fakes import ScriptedEngine, ScriptedTrainer
from axisrl.types import AdvantageResult, Task, Verdict

FAKES = "axisrl.testing.fakes"


@hookimpl
def axisrl_envs():
    return [EnvComponent(name="echo", target=f"{FAKES}:EchoEnv", config=f"{FAKES}:EchoEnvConfig")]


@hookimpl
def axisrl_datasets():
    return [
        DatasetComponent(
            name="count", target=f"{FAKES}:CountDataset", config=f"{FAKES}:CountDatasetConfig"
        ),
        DatasetComponent(name="bare", target=f"{__name__}:Bare"),
        DatasetComponent(name="none", target=f"{__name__}:Nothing"),
    ]


@hookimpl
def axisrl_verifiers():
    return [
        VerifierComponent(name="exact", target=f"{FAKES}:ExactVerifier"),
        VerifierComponent(
            name="odd",
            target=f"{__name__}:Odd",
            config=f"{__name__}:OddConfig",
            deterministic=False,
        ),
        VerifierComponent(name="late", target=f"{__name__}:Late", deterministic=False),
    ]


@hookimpl
def axisrl_rollout_engines():
    return [
        EngineComponent(
            name="engine",
            target=f"{__name__}:Engine",
            config=f"{FAKES}:ScriptedEngineConfig",
            transports=("disk",),
            offloads=True,
            spans=True,
            supports_routing_capture=True,
        )
    ]


@hookimpl
def axisrl_trainer_backends():
    return [
        TrainerComponent(
            name="trainer",
            target=f"{__name__}:Trainer",
            config=f"{FAKES}:ScriptedTrainerConfig",
            transports=("disk",),
            offloads=True,
            replays_routing=True,
        )
    ]


@hookimpl
def axisrl_advantages():
    return [
        AdvantageComponent(name="centred", target=f"{__name__}:Centred"),
        AdvantageComponent(
            name="critic", target=f"{__name__}:Critic", group_relative=False, needs_values=True
        ),
    ]


@hookimpl
def axisrl_losses():
    return [
        LossComponent(name="plain", target=f"{__name__}:Plain"),
        LossComponent(name="proximal", target=f"{__name__}:Proximal"),
        LossComponent(name="valued", target=f"{__name__}:Valued"),
        LossComponent(name="error", target=f"{__name__}:Error", trains="value"),
    ]


@hookimpl
def axisrl_models_found(config, models):
    if config.seed == 13:
        yield ConfigProblem(path="model", message=f"{models['model']} is unlucky")


@hookimpl
def axisrl_step_finished(event):
    if "STAGE_DEAF" in os.environ:
        raise ValueError("not listening")


class Bare:
    """Tasks without the fields the env needs."""

    def __init__(self, config, context):
        pass

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Task(id=f"bare-{index}", data={})


class Nothing(Bare):
    """No task at all."""

    def __len__(self):
        return 0


@dataclass(frozen=True, kw_only=True, slots=True)
class OddConfig(Config):
    how: str = "raises"
    of: int = 1
    """Misbehaves for every so-manieth member of a group; the others score 1."""


class Odd:
    """A verifier that does not judge."""

    def __init__(self, config, context):
        self.how, self.of = config.how, config.of

    async def verify(self, task, rollout):
        if rollout.member % self.of:
            return Verdict(score=1.0, passed=True)
        if self.how == "hangs":
            await asyncio.Event().wait()
        if self.how == "misconfigured":
            raise ConfigError("there is no such judge")
        if self.how == "raises":
            raise RuntimeError("verifier bug")
        if self.how == "cannot":
            return Verdict(score=None, error="judge is down")
        return Verdict(score=float(self.how))


class Late:
    """Judges the first update's rollouts, and breaks after the weights have changed."""

    def __init__(self, config, context):
        pass

    async def verify(self, task, rollout):
        if any(node.versions is not None and node.versions.any() for node in rollout.trace):
            raise RuntimeError("verifier bug")
        return Verdict(score=1.0, passed=True)


class Engine(ScriptedEngine):
    """Says the number it is asked for, except for odd seeds: a policy that is right half of the
    time."""

    def __init__(self, config, context):
        super().__init__(config, context, script=None if config.replies else self._say)

    def join(self, part, parts, address):
        """Nothing is asked of a part that is not the first."""

    def _say(self, prompt, request):
        number = prompt.split("Say ")[1].split(".")[0]
        wrong = request.seed % 2 and request.sampling.temperature > 0
        return "wrong" if wrong else number


class Trainer(ScriptedTrainer):
    """Counts passes, and dies where the environment says so (a killed process, not an
    exception)."""

    passes = 0

    def logprobs(self, batches):
        type(self).passes += 1
        return super().logprobs(batches)

    def step(self, batches, loss):
        if self.steps + 1 == int(os.environ.get("STAGE_KILL_AT", "-1")):
            os._exit(9)
        return super().step(batches, loss)


class Centred:
    group_relative = True
    needs_values = False
    whiten = False

    def __init__(self, config, context):
        pass

    def __call__(self, group, values):
        mean = group.rewards.mean()
        return AdvantageResult(advantages=tuple(reward - mean for reward in group.rewards))


class Critic:
    """Reward - V, and the reward as what a value model learns."""

    group_relative = False
    needs_values = True
    whiten = True

    def __init__(self, config, context):
        pass

    def __call__(self, group, values):
        pairs = list(zip(group.rewards, values, strict=True))
        return AdvantageResult(
            advantages=tuple(reward - value.tokens for reward, value in pairs),
            returns=tuple(np.full_like(value.tokens, reward) for reward, value in pairs),
        )


class Plain:
    needs = frozenset()
    level = "token"
    aggregation = "token_mean"
    sequence_norm = 1

    def __init__(self, config, context):
        pass


class Proximal(Plain):
    needs = frozenset({"old_logprobs"})


class Error(Plain):
    needs = frozenset({"values"})


class Valued(Plain):
    needs = frozenset({"values", "a crystal ball"})
