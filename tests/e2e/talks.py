"""A local plugin (``--plugin talks.py``): an environment of several turns, tasks for it, and
ppo/gae writing down what it gave."""

import json

from axisrl.plugins import AdvantageComponent, DatasetComponent, EnvComponent, hookimpl
from axisrl.types import Task
from axisrl_ppo.advantage import GaeAdvantage

FAKES = "axisrl.testing.fakes"


@hookimpl
def axisrl_envs():
    return [EnvComponent(name="echo", target=f"{FAKES}:EchoEnv", config=f"{FAKES}:EchoEnvConfig")]


@hookimpl
def axisrl_datasets():
    return [DatasetComponent(name="letters", target=f"{__name__}:Letters")]


@hookimpl
def axisrl_advantages():
    return [
        AdvantageComponent(
            name="gae",
            target=f"{__name__}:NotedGae",
            config="axisrl_ppo.config:GaeConfig",
            group_relative=False,
            needs_values=True,
        )
    ]


class Letters:
    """Say a letter; a turn that says it is rewarded."""

    def __init__(self, config, context):
        pass

    def __len__(self):
        return 16

    def __getitem__(self, index):
        letter = chr(ord("a") + index)
        return Task(id=letter, data={"question": f"Say {letter}", "answer": letter})


class NotedGae(GaeAdvantage):
    """``noted.jsonl`` of the run folder: a line a rollout."""

    def __init__(self, config, context):
        super().__init__(config, context)
        self._path = context.run_dir / "noted.jsonl"

    def __call__(self, group, values):
        result = super().__call__(group, values)
        with self._path.open("a") as file:
            for at, member in enumerate(group.members):
                noted = {
                    "id": member.id,
                    "tokens": group.turns[at].tokens,
                    "values": values[at].tokens.tolist(),
                    "advantages": result.advantages[at].tolist(),
                }
                file.write(json.dumps(noted) + "\n")
        return result
