"""Finds a recipe and reads the YAML it stands on. Merging is :mod:`axisrl.config.load`'s.

A recipe is ``plugin/recipe``, a YAML file, a run folder (its ``config.yaml``), or the folder of a
recipe project whose plugin is installed. ``extends: plugin/recipe`` or ``extends: other.yaml``
(beside the file) at its top lays it over another one. A list begins with that one; presets
(``plugin/preset``) and files of a few settings follow, each laid over those before it.
"""

from __future__ import annotations

import importlib
import tomllib
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from axisrl.config.text import read_tree
from axisrl.errors import ConfigError, PluginError, UsageError
from axisrl.plugins.components import RecipeComponent
from axisrl.plugins.resolve import parse_id
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
    plugin: str = ""
    """Whose recipe or preset it is; empty for a file."""


@dataclass(frozen=True, slots=True)
class Recipe:
    """``layers`` from the bottom of what it ``extends`` to the recipe itself."""

    name: str
    layers: tuple[Layer, ...]
    smoke: tuple[Layer, ...]
    """The overlays of ``--smoke`` along the chain of recipes, in the order of ``layers``: a recipe
    that has its own says no more than what it changes in the one it extends."""


@dataclass(frozen=True, slots=True)
class _Source:
    """One YAML file; a ``file`` may hold a recipe or a few settings. ``smoke`` is the target of the
    overlay, ``run_of`` the recipe that a run folder's was made from."""

    name: str
    path: Path
    form: Literal["file", "recipe", "preset"]
    plugin: str = ""
    smoke: str | None = None
    run_of: str = ""


def read_recipe(ref: str, manager: PluginManager) -> Recipe:
    """The recipe that ``ref`` names; activates the plugins that it and its ``extends`` name.

    Raises ``UsageError`` when there is none, ``ConfigError`` for a preset and for a chain that
    comes back to itself, ``PluginError`` when its plugin cannot be used.
    """
    source = _locate(ref, manager, Path(), "recipe")
    _refuse_preset(source, f"give it to a recipe: axisrl run RECIPE --config {source.name}")
    layers, smoke = _stack(source, manager, (), whole=True)
    return Recipe(source.run_of or source.name, tuple(layers), tuple(smoke))


def read_settings(ref: str, manager: PluginManager) -> list[Layer]:
    """What ``--config ref`` lays over a recipe: a YAML file or a preset, and below it what it
    ``extends``. Activates the plugins of presets.

    Raises as :func:`read_recipe`, and ``ConfigError`` for a whole recipe.
    """
    source = _locate(ref, manager, Path(), "--config")
    _refuse_recipe(source, f"give it as RECIPE: axisrl run {source.name}")
    return _stack(source, manager, (), whole=False)[0]


def _stack(
    source: _Source, manager: PluginManager, above: tuple[Path, ...], *, whole: bool
) -> tuple[list[Layer], list[Layer]]:
    """The layers of ``source`` and its smoke settings, its own on top.

    ``whole`` when it is a recipe and not settings for one; ``above`` are the files whose
    ``extends`` led here.
    """
    seen = (*above, source.path.resolve())
    if seen[-1] in above:
        chain = " -> ".join(str(each) for each in seen)
        raise ConfigError(f"`extends` comes back to itself: {chain}", fix="break the circle")
    origin = _origin(source, whole=whole)
    tree = read_tree(source.path, origin)
    layers: list[Layer] = []
    smoke: list[Layer] = []
    for position, ref in enumerate(_extended(tree.pop("extends", None), origin)):
        below = _locate(ref, manager, source.path.parent, "extends")
        first = whole and position == 0
        if first:
            _refuse_preset(below, f"begin with a recipe: extends: [plugin/recipe, {ref}]")
        else:
            _refuse_recipe(below, "put it first in the `extends` of a recipe")
        found, inherited = _stack(below, manager, seen, whole=first)
        layers += found
        smoke += inherited
    own = _smoke(source) if whole else []
    return [*layers, Layer(tree, origin, source.plugin)], [*smoke, *own]


def _origin(source: _Source, *, whole: bool) -> str:
    if source.form == "preset":
        return f"preset {source.name}"
    return f"recipe {source.name}" if whole else source.name


def _extended(value: Any, origin: str) -> list[str]:
    refs = value if isinstance(value, list) else [] if value is None else [value]
    if not all(isinstance(ref, str) for ref in refs):
        raise ConfigError(
            f"{origin}: `extends` is {value!r}, not a recipe or a list that begins with one",
            fix="write `extends: plugin/recipe`, `extends: file.yaml` or "
            "`extends: [plugin/recipe, plugin/preset]`",
        )
    return refs


def _refuse_preset(source: _Source, fix: str) -> None:
    if source.form == "preset":
        raise ConfigError(
            f"{source.name} is a preset: a few settings for a recipe, not a run of its own", fix=fix
        )


def _refuse_recipe(source: _Source, fix: str) -> None:
    if source.form == "recipe":
        raise ConfigError(
            f"{source.name} is a whole recipe: laid over another one it would replace its model, "
            "data and environment too; only presets and files of settings go there",
            fix=fix,
        )


def _locate(ref: str, manager: PluginManager, base: Path, where: str) -> _Source:
    """``where`` stands before what is said about an id."""
    path = base / Path(ref).expanduser()
    is_path = ref.startswith((".", "/", "~")) or "." in path.name
    installed = {record.name for record in manager.records()}
    if not is_path and (ref.partition("/")[0] in installed or not path.exists()):
        return _offered(ref, manager, where)
    if path.is_dir():
        return _folder(path, manager)
    if not path.is_file():
        raise UsageError(f"there is no file {path}", fix="check the path")
    return _Source(ref, path, "file")


def _offered(ref: str, manager: PluginManager, where: str) -> _Source:
    owner = parse_id(ref, where).plugin
    manager.activate([owner] if owner else [])
    resolved = manager.find("recipe", ref, where)
    component = cast("RecipeComponent", resolved.component)
    path = _data_file(component.target, resolved.id)
    form: Literal["preset", "recipe"] = "preset" if component.preset else "recipe"
    return _Source(resolved.id, path, form, resolved.plugin, component.smoke)


def _folder(path: Path, manager: PluginManager) -> _Source:
    if (path / CONFIG_FILE).is_file() and not (path / "pyproject.toml").is_file():
        run_of = str(RunFolder(path).manifest.get("recipe", ""))
        return _Source(str(path / CONFIG_FILE), path / CONFIG_FILE, "recipe", run_of=run_of)
    names = _project_plugins(path)
    installed = {record.name: record for record in manager.records()}
    for name in names:
        if name not in installed:
            raise UsageError(
                f"the plugin {name} of the project {path} is not installed",
                fix=f"pip install -e {path}",
            )
        manager.activate([name])
        offered = cast("tuple[RecipeComponent, ...]", installed[name].components.get("recipe", ()))
        recipes = [each.name for each in offered if not each.preset]
        if recipes:
            return _offered(f"{name}/{recipes[0]}", manager, "recipe")
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


def _smoke(source: _Source) -> list[Layer]:
    if source.smoke is None:
        return []
    origin = f"smoke settings of {source.name}"
    return [Layer(read_tree(_data_file(source.smoke, source.name), origin), origin)]


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
