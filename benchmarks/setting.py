"""The work that both sides of the comparison do: one recipe, its prompts and its model folder.

It runs no update. Nothing here is timed.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from axisrl.config.load import LoadedConfig, RunRequest, load_run
from axisrl.config.schema import Use
from axisrl.models import resolve_model
from axisrl.plugins import Kind
from axisrl.plugins.manager import PluginManager
from axisrl.runtime.actors import ActorBoot, build_component
from axisrl.runtime.chat import Conversation, load_tokenizer
from axisrl.runtime.sampler import TaskSampler
from axisrl.types import ModelSpec


@dataclass(frozen=True, slots=True)
class PromptTask:
    """A rendered prompt, and the answer that its reward compares with."""

    prompt: str
    answer: str


def load(recipe: str, overrides: Sequence[str]) -> tuple[LoadedConfig, PluginManager]:
    """The recipe with ``key.path=value`` laid over it."""
    manager = PluginManager.discover()
    request = RunRequest(recipe=recipe, overrides=tuple(overrides))
    return load_run(request, manager), manager


def prompt_tasks(loaded: LoadedConfig, manager: PluginManager, count: int) -> list[PromptTask]:
    """The first ``count`` prompts of a run, in the order in which it plays them.

    Raises ``ValueError`` for a recipe that plays none.
    """
    config = loaded.config
    if config.dataset is None or config.env is None:
        raise ValueError(f"recipe {loaded.recipe} has no dataset or no env")
    path = Path(config.model.name)
    tokenizer = load_tokenizer(path)
    with tempfile.TemporaryDirectory() as folder:
        boot = ActorBoot(
            role="benchmark",
            rank=0,
            manifest=manager.manifest(),
            config=config,
            run_dir=Path(folder),
            model=ModelSpec(name=config.model.name, path=path),
        )
        services = {"model": boot.model, "tokenizer": tokenizer}
        what: tuple[Kind, Use, str] = ("dataset", config.dataset, "dataset")
        dataset = build_component(manager, boot, services, what)
        sampler = TaskSampler(dataset, config.seed, config.sampler)
        found = []
        for _ in range(count):
            task = sampler.take()
            env = build_component(manager, boot, services, ("env", config.env, "env"))
            conversation = Conversation(tokenizer)
            conversation.observe(asyncio.run(env.reset(task)))
            prompt = tokenizer.decode(conversation.context.tolist(), skip_special=False)
            found.append(PromptTask(prompt, str(task.data["answer"])))
    return found


def model_folder(name: str, manager: PluginManager, cache: Path) -> Path:
    """The folder of a named model, fetched when it is not there yet."""
    return resolve_model(name, manager, cache)


def endless(source: Path, target: Path) -> Path:
    """A copy of a model folder, weights linked, whose end token is one that it does not write.

    Every answer then runs to the token limit, on every side that reads the folder: the same work
    without a switch of either's own. Raises ``ValueError`` when no special token is spare.
    """
    target.mkdir(parents=True)
    for path in source.iterdir():
        if path.suffix == ".safetensors":
            (target / path.name).symlink_to(path.resolve())
        else:
            shutil.copy(path, target / path.name)
    text, number = _spare_token(source)
    _change(target / "config.json", eos_token_id=number)
    _change(target / "generation_config.json", eos_token_id=number)
    _change(target / "tokenizer_config.json", eos_token=text)
    return target


def _spare_token(folder: Path) -> tuple[str, int]:
    """The special token with the highest id that has no part in a chat."""
    added = json.loads((folder / "tokenizer.json").read_text())["added_tokens"]
    roles = json.loads((folder / "tokenizer_config.json").read_text())
    taken = {roles.get("eos_token"), roles.get("pad_token"), roles.get("bos_token")}
    taken |= {"<|im_start|>", "<|im_end|>"}
    spare = [(each["content"], each["id"]) for each in added if each["content"] not in taken]
    if not spare:
        raise ValueError(f"{folder} has no special token to spare")
    return max(spare, key=lambda pair: pair[1])


def _change(path: Path, **values: str | int) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | values, indent=2))
