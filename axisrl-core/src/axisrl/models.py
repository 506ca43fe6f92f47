"""Finds the folder of a model: a path, a named model of a plugin, or a Hugging Face id.

It does not load weights. ``huggingface_hub`` is imported only when a name is neither a folder nor a
named model.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from axisrl.errors import ConfigError, EnvironmentProblem, PluginError
from axisrl.plugins.components import Component, ComponentRef
from axisrl.runfolder import RunFolder

if TYPE_CHECKING:
    from axisrl.plugins.manager import PluginManager

_HUB_FILES = ("*.json", "*.safetensors", "*.txt", "*.model", "*.jinja")


class NamedModel(NamedTuple):
    """A model that a plugin can bring onto this machine."""

    id: str
    component: Component


def resolve_model(name: str, manager: PluginManager, cache: Path) -> Path:
    """The folder (config.json, tokenizer files, safetensors) of a model.

    1. A folder with a config.json.
    2. What a run has trained: its checkpoint's folder, or the run's, which is its newest complete
       checkpoint at this moment.
    3. A named model, bare or ``plugin/model``: of the active plugins, else of any installed one.
    4. A Hugging Face id: from the local cache, else from the hub.

    Raises ``EnvironmentProblem`` that says what was tried, ``ConfigError`` when two plugins share
    the name.
    """
    if found := _folder(name):
        return found
    named = _named(name, manager)
    if named is not None:
        return fetch_named(named, manager, cache)
    return _from_hub(name, manager)


def model_at_hand(name: str) -> Path | None:
    """The folder of a model that needs no plugin and no network to be found, if it is one.

    Raises ``EnvironmentProblem`` for a folder without a model.
    """
    return _folder(name) or _cached(name)


def fetch_named(model: NamedModel, manager: PluginManager, cache: Path) -> Path:
    """The folder of a named model, made under ``cache`` when it is not there yet."""
    from axisrl.types import BuildContext

    ref = ComponentRef(kind="model", use=model.id)
    source = manager.build("model", ref, BuildContext(run_dir=cache), "model")
    folder: Path = source.fetch(cache)
    return folder


def named_models(manager: PluginManager) -> list[NamedModel]:
    """The named models of every installed plugin that works. Activates them all; one that cannot
    be activated is left out."""
    for record in manager.records():
        if record.state == "found":
            try:
                manager.activate([record.name])
            except PluginError:
                continue  # `axisrl plugins` shows why
    return list(_active_models(manager))


def _active_models(manager: PluginManager) -> Iterator[NamedModel]:
    for record in manager.records():
        if record.state == "active":
            for component in record.components.get("model", ()):
                yield NamedModel(f"{record.name}/{component.name}", component)


def _folder(name: str) -> Path | None:
    """The folder that ``name`` is."""
    folder = Path(name).expanduser()
    if (folder / "config.json").is_file():
        return folder.resolve()
    if (folder / "manifest.json").is_file() or (folder / "state.json").is_file():
        return _trained(folder).resolve()
    if name.startswith((".", "/", "~")):
        raise EnvironmentProblem(
            f"there is no model in {folder}: it has no config.json",
            fix="give a folder in Hugging Face layout, a named model (axisrl models) or a hub id",
        )
    return None


def _trained(folder: Path) -> Path:
    checkpoint = folder
    if not (folder / "state.json").is_file():
        newest = RunFolder(folder).newest_checkpoint
        if newest is None:
            raise EnvironmentProblem(
                f"the run {folder} has no complete checkpoint, so there is no model in it",
                fix="name another run, or a model's folder",
            )
        checkpoint = newest
    model = checkpoint / "trainer" / "model"
    if not (model / "config.json").is_file():
        raise EnvironmentProblem(
            f"the checkpoint {checkpoint} holds no model in trainer/model",
            fix="name a run that trained a model, or a model's folder",
        )
    return model


def _named(name: str, manager: PluginManager) -> NamedModel | None:
    for models in (_active_models, named_models):
        found = [model for model in models(manager) if name in (model.id, model.component.name)]
        if len(found) > 1:
            raise ConfigError(
                f"model {name!r} is ambiguous: {', '.join(model.id for model in found)}",
                fix="write the plugin too",
            )
        if found:
            return found[0]
    return None


def _from_hub(name: str, manager: PluginManager) -> Path:
    if found := _cached(name):
        return found
    try:
        found = _snapshot(name, local_only=False)
    except ImportError:
        raise _missing(name, manager, "huggingface_hub is not installed") from None
    except Exception as error:  # the hub's HTTP library has types of its own
        raise _missing(name, manager, _reason(error)) from error
    if _is_whole(found):
        return found
    raise _missing(name, manager, "its repository holds no config.json with safetensors weights")


def _cached(name: str) -> Path | None:
    """A whole model in the hub's local cache."""
    try:
        found = _snapshot(name, local_only=True)
    except Exception:  # noqa: BLE001 - not there, whatever the hub's library calls that
        return None
    return found if _is_whole(found) else None


def _snapshot(name: str, *, local_only: bool) -> Path:
    from huggingface_hub import snapshot_download

    patterns = list(_HUB_FILES)
    return Path(snapshot_download(name, allow_patterns=patterns, local_files_only=local_only))


def _is_whole(folder: Path) -> bool:
    if not (folder / "config.json").is_file():
        return False
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        shards = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
        return all((folder / shard).is_file() for shard in shards)
    return any(folder.glob("*.safetensors"))


def _reason(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def _missing(name: str, manager: PluginManager, reason: str) -> EnvironmentProblem:
    from axisrl.config.problems import nearest

    known = {model.component.name: model.id for model in named_models(manager)}
    near = nearest(name.rpartition("/")[2], known)
    hint = f"; did you mean {near}?" if near else ""
    listed = ", ".join(known.values()) or "none is installed"
    return EnvironmentProblem(
        f"there is no model {name!r}{hint} (no such folder or named model; Hugging Face: {reason})",
        fix=f"use a named model ({listed}), give a folder with config.json and safetensors, or "
        f"run `axisrl models fetch {name}` where the hub can be reached",
    )
