"""Finds a recipe and reads the chain of YAML it stands on. Merging is :mod:`axisrl.config.load`'s.

A recipe is ``plugin/recipe``, a YAML file, a run folder (its ``config.yaml``), or the folder of a
recipe project whose plugin is installed. ``extends: plugin/recipe`` or ``extends: other.yaml``
(beside the file) at its top lays it over another one.
"""

from __future__ import annotations

import importlib
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from axisrl.config.text import read_tree
from axisrl.errors import ConfigError, PluginError, UsageError
from axisrl.plugins.components import RecipeComponent
from axisrl.plugins.resolve import Resolved, parse_id
from axisrl.runfolder import RunFolder

if TYPE_CHECKING:
    from axisrl.plugins.manager import PluginManager

CONFIG_FILE = "config.yaml"
"""The resolved configuration in a run's folder."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Plain YAML and the name errors and comments give it."""

    tree: dict[str, Any]
    origin: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """``layers`` from the bottom of the ``extends`` chain to the recipe itself."""

    name: str
    layers: tuple[Layer, ...]
    smoke: Layer | None
    """The overlay of ``--smoke``: the nearest one in the chain."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One file of the chain. ``resolved`` is set when a plugin offers it, ``recipe`` when it is a
    run's own copy of one."""

    name: str
    path: Path
    resolved: Resolved | None = None
    recipe: str = ""


def read_recipe(ref: str, manager: PluginManager) -> Recipe:
    """The recipe that ``ref`` names; activates the plugins that its chain names.

    Raises ``UsageError`` when there is none, ``ConfigError`` for a chain that comes back to
    itself, ``PluginError`` when its plugin cannot be used.
    """
    source: _Source | None = _locate(ref, manager, Path())
    name, smoke, seen = "", None, list[Path]()
    layers: list[Layer] = []
    while source is not None:
        path = source.path.resolve()
        if path in seen:
            chain = " -> ".join(str(each) for each in [*seen, path])
            raise ConfigError(f"`extends` comes back to itself: {chain}", fix="break the circle")
        seen.append(path)
        tree = read_tree(source.path, f"recipe {source.name}")
        name = name or source.recipe or source.name
        smoke = smoke or _smoke(source)
        parent = tree.pop("extends", None)
        layers.insert(0, Layer(tree, f"recipe {source.name}"))
        source = _parent(parent, source, manager)
    return Recipe(name, tuple(layers), smoke)


def _parent(parent: Any, source: _Source, manager: PluginManager) -> _Source | None:
    if parent is None:
        return None
    if not isinstance(parent, str):
        raise ConfigError(
            f"recipe {source.name}: `extends` is {parent!r}, not a recipe",
            fix="write `extends: plugin/recipe` or `extends: file.yaml`",
        )
    return _locate(parent, manager, source.path.parent)


def _locate(ref: str, manager: PluginManager, base: Path) -> _Source:
    path = base / Path(ref).expanduser()
    is_path = ref.startswith((".", "/", "~")) or ref.endswith((".yaml", ".yml"))
    installed = {record.name for record in manager.records()}
    if not is_path and (ref.partition("/")[0] in installed or not path.exists()):
        return _offered(ref, manager)
    if path.is_dir():
        return _folder(path, manager)
    if not path.is_file():
        raise UsageError(f"there is no recipe file {path}", fix="check the path")
    return _Source(ref, path)


def _offered(ref: str, manager: PluginManager) -> _Source:
    owner = parse_id(ref, "recipe").plugin
    manager.activate([owner] if owner else [])
    resolved = manager.find("recipe", ref, "recipe")
    return _Source(resolved.id, _data_file(resolved.component.target, resolved.id), resolved)


def _folder(path: Path, manager: PluginManager) -> _Source:
    if (path / CONFIG_FILE).is_file() and not (path / "pyproject.toml").is_file():
        recipe = RunFolder(path).manifest.get("recipe", "")
        return _Source(str(path / CONFIG_FILE), path / CONFIG_FILE, recipe=str(recipe))
    names = _project_plugins(path)
    installed = {record.name: record for record in manager.records()}
    for name in names:
        if name not in installed:
            raise UsageError(
                f"the plugin {name} of the project {path} is not installed",
                fix=f"pip install -e {path}",
            )
        manager.activate([name])
        recipes = installed[name].components.get("recipe", ())
        if recipes:
            return _offered(f"{name}/{recipes[0].name}", manager)
    offers = f"its plugin {names[0]} offers none" if names else "it is no recipe project"
    raise UsageError(
        f"{path} holds no recipe: {offers}",
        fix="give a YAML file, plugin/recipe, or a folder made by `axisrl new-recipe`",
    )


def _project_plugins(path: Path) -> list[str]:
    try:
        project = tomllib.loads((path / "pyproject.toml").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise UsageError(f"cannot read {path / 'pyproject.toml'}: {error}") from error
    points = project.get("project", {}).get("entry-points", {}).get("axisrl", {})
    return list(points)


def _smoke(source: _Source) -> Layer | None:
    if source.resolved is None:
        return None
    target = cast(RecipeComponent, source.resolved.component).smoke
    if target is None:
        return None
    origin = f"smoke settings of {source.name}"
    return Layer(read_tree(_data_file(target, source.name), origin), origin)


def _data_file(target: str, recipe: str) -> Path:
    """``"package:path/in/package.yaml"`` as a path."""
    package, _, inner = target.partition(":")
    try:
        importlib.import_module(package)
        path = Path(str(files(package).joinpath(inner)))
    except (ImportError, TypeError) as error:
        raise PluginError(
            f"recipe {recipe} points to {target!r}: {error}", fix="reinstall its plugin"
        ) from error
    if not path.is_file():
        raise PluginError(
            f"recipe {recipe} points to {target!r}, and that file is not in the package",
            fix="reinstall its plugin",
        )
    return path
