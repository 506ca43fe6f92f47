"""Loads a run's configuration: layers, validation, components, checks, each value's origin.

Dataclass defaults < recipe (what it ``extends`` first) < ``--smoke`` < ``--config`` files and
presets left to right < ``key.path=value``. Nothing is started or built, and no file is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axisrl.config.inert import settle_inert
from axisrl.config.overrides import Layers, origin_of, parse_override
from axisrl.config.problems import Problem, raise_problems
from axisrl.config.recipe import CONFIG_FILE, Layer, Recipe, read_recipe, read_settings
from axisrl.config.render import render
from axisrl.config.resolve import UsedComponent, check, resolve
from axisrl.config.schema import RunConfig
from axisrl.config.shape import expand, leaves, plain
from axisrl.config.text import read_tree
from axisrl.config.validate import validate
from axisrl.errors import UsageError

if TYPE_CHECKING:
    from axisrl.plugins.manager import PluginManager
    from axisrl.plugins.problem import ConfigProblem

COMMAND_LINE = "command line"
DEFAULT = "default"
_DEFAULT_OF = "default of "


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """What the command line asks for."""

    recipe: str
    """``plugin/recipe``, a YAML file, a run folder or the folder of a recipe project."""
    configs: tuple[str, ...] = ()
    """Laid over the recipe from left to right: YAML files and presets (``plugin/preset``)."""
    overrides: tuple[str, ...] = ()
    """``key.path=value`` or ``--key.path=value``; values are YAML."""
    smoke: bool = False
    loggers: tuple[str, ...] = ()
    """Added to the configuration's: a component id, or the name of one of core's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedConfig:
    """A configuration that can run."""

    config: RunConfig
    tree: dict[str, Any]
    """``config`` as YAML data, every default filled in, components' included; ids qualified."""
    origins: dict[str, str]
    """Dotted key of each leaf of ``tree`` -> where it was set."""
    recipe: str
    components: tuple[UsedComponent, ...] = ()
    notes: tuple[str, ...] = ()
    """Options that were set for a component that another one took the place of."""


def load_run(request: RunRequest, manager: PluginManager) -> LoadedConfig:
    """Merge, validate and check. Activates the plugins that the configuration names.

    Raises ``UsageError``, ``ConfigError`` or ``PluginError`` that names the key, where it was set
    and what to do.
    """
    recipe = read_recipe(request.recipe, manager)
    settings = [layer for ref in request.configs for layer in read_settings(ref, manager)]
    layers = _merge(request, recipe, settings)
    _follow_group_size(layers)
    config = validate(RunConfig, layers.tree, origins=layers.origins)
    raise_problems(settle_inert(config, layers, _defaults()), layers.origins)
    config = validate(RunConfig, layers.tree, origins=layers.origins)
    used = resolve(config, manager, layers.origins)
    config = _with_plugins(config, [*recipe.layers, *settings], used, layers.origins)
    tree, origins = _resolved_tree(config, used, layers.origins)
    config = validate(RunConfig, tree, origins=origins)
    raise_problems(check(config, used), origins)
    _raise_found(manager.config_resolved(config), origins)
    return LoadedConfig(
        config=config,
        tree=tree,
        origins=origins,
        recipe=recipe.name,
        components=used,
        notes=tuple(_left_behind(layers, tree, origins)),
    )


def check_models(loaded: LoadedConfig, manager: PluginManager, models: Mapping[str, Path]) -> None:
    """Let the plugins look at the models' folders, by the keys that name them.

    Raises ``ConfigError`` with all that they find wrong.
    """
    _raise_found(manager.models_found(loaded.config, models), loaded.origins)


def model_names(config: RunConfig) -> dict[str, str]:
    """Names of the models that a run loads, by the keys that name them."""
    named = {"model": config.model}
    if config.value:
        named["value.model"] = config.value.model or config.model
    if config.teacher:
        named["teacher.model"] = config.teacher.model
    return {path: model.name for path, model in named.items()}


def write_config(loaded: LoadedConfig, folder: Path) -> Path:
    """Write ``config.yaml`` with origins into the run's folder; returns its path."""
    make_folder(folder)
    path = folder / CONFIG_FILE
    path.write_text(render(loaded.tree, loaded.origins), encoding="utf-8")
    return path


def make_folder(folder: Path) -> None:
    """Make a run's folder where it is not there yet. Raises ``UsageError`` when it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise UsageError(
            f"the run's folder {folder} cannot be made: {problem.strerror}",
            fix="choose another --run-dir, or set AXISRL_OUTPUT_DIR",
        ) from problem


def stored_tree(run_dir: Path) -> dict[str, Any]:
    """The resolved configuration that a run folder was made with."""
    return read_tree(run_dir / CONFIG_FILE)


def _raise_found(found: Iterable[ConfigProblem], origins: Mapping[str, str]) -> None:
    raise_problems([Problem(p.path, _said(p.path, p.message), p.fix) for p in found], origins)


def _merge(request: RunRequest, recipe: Recipe, settings: list[Layer]) -> Layers:
    layers = _defaults()
    for layer in recipe.layers:
        layers.add(expand(RunConfig, layer.tree), layer.origin)
    if request.smoke:
        if not recipe.smoke:
            raise UsageError(
                f"recipe {recipe.name} has no smoke settings",
                fix="leave out --smoke, or give smaller sizes with key=value",
            )
        for layer in recipe.smoke:
            layers.add(expand(RunConfig, layer.tree), layer.origin)
    for layer in settings:
        layers.add(expand(RunConfig, layer.tree), layer.origin)
    for argument in request.overrides:
        layers.add(expand(RunConfig, parse_override(argument)), COMMAND_LINE)
    _add_loggers(layers, request.loggers)
    _drop_removed(layers)
    return layers


def _defaults() -> Layers:
    tree: dict[str, Any] = {}
    for item in fields(RunConfig):
        if item.default is not MISSING:
            tree[item.name] = plain(item.default)
        elif item.default_factory is not MISSING:
            tree[item.name] = plain(item.default_factory())
    layers = Layers()
    layers.add(tree, DEFAULT)
    return layers


def _add_loggers(layers: Layers, names: tuple[str, ...]) -> None:
    listed = layers.tree.get("loggers")
    if not names or not isinstance(listed, list | tuple):
        return
    added = list(listed)
    for name in names:
        use = name if "/" in name else f"core/{name}"
        if not any(isinstance(each, Mapping) and each.get("use") == use for each in added):
            added.append({"use": use})
    layers.add({"loggers": added}, "--logger")


def _drop_removed(layers: Layers) -> None:
    """``verifiers.math=null`` takes a verifier out that a lower layer put in, and a service alike;
    ``rewards.main=null`` a reward, with the weight that lower layers gave it."""
    for section in ("verifiers", "rewards", "services"):
        named = layers.tree.get(section)
        if not isinstance(named, dict):
            continue
        for name in [name for name, use in named.items() if use is None]:
            del named[name]
            removed_by = layers.origins.pop(f"{section}.{name}")
            if not named:
                layers.origins[section] = removed_by
            if section == "rewards":
                _drop_weight(name, layers, layers.rank(removed_by))


def _drop_weight(name: str, layers: Layers, below: int) -> None:
    weights, key = layers.tree.get("reward_weights"), f"reward_weights.{name}"
    set_by = layers.origins.get(key)
    if isinstance(weights, dict) and set_by is not None and layers.rank(set_by) < below:
        del weights[name], layers.origins[key]


def _follow_group_size(layers: Layers) -> None:
    """Unless it was set, the smallest usable group is never larger than the group."""
    rollout = layers.tree.get("rollout")
    if layers.origins.get("rollout.min_group_size") != DEFAULT or not isinstance(rollout, dict):
        return
    size = rollout.get("group_size")
    if isinstance(size, int) and 0 < size < rollout["min_group_size"]:
        layers.add({"rollout": {"min_group_size": size}}, "rollout.group_size")


def _with_plugins(
    config: RunConfig,
    read: Sequence[Layer],
    used: tuple[UsedComponent, ...],
    origins: dict[str, str],
) -> RunConfig:
    """Lists plugins that gave settings and no component: a run that is resumed from its own
    ``config.yaml`` has to find them."""
    known = {each.resolved.plugin for each in used}
    for layer in read:
        if layer.plugin and layer.plugin not in {*known, *config.plugins}:
            config = replace(config, plugins=(*config.plugins, layer.plugin))
            origins["plugins"] = layer.origin
    return config


def _resolved_tree(
    config: RunConfig, used: tuple[UsedComponent, ...], origins: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    tree = plain(config)
    defaults = {}
    for each in used:
        *parents, last = each.path.split(".")
        at: Any = tree
        for part in parents:
            at = at[int(part) if isinstance(at, list) else part]
        key: Any = int(last) if isinstance(at, list) else last
        at[key] = {**at[key], "use": each.id, **each.options}
        defaults[each.path] = f"{_DEFAULT_OF}{each.resolved.id}"
    known = {
        leaf: origins.get(leaf) or origin_of(origins, leaf) or origin_of(defaults, leaf) or DEFAULT
        for leaf in leaves(tree)
    }
    return tree, known


def _left_behind(
    layers: Layers, tree: Mapping[str, Any], origins: Mapping[str, str]
) -> Iterator[str]:
    """Options of a replaced component that the one in its place knows, too, and has at another
    value because nobody set it."""
    for leaf, left in layers.left.items():
        at: Any = tree
        for part in leaf.split("."):
            at = at.get(part) if isinstance(at, Mapping) else None
        default = origins.get(leaf, "")
        if default.startswith(_DEFAULT_OF) and at is not None and at != left.value:
            yield (
                f"{leaf} is {at!r}, the {default}: {left.value!r} ({left.origin}) was set for "
                f"{left.component}"
            )


def _said(path: str, message: str) -> str:
    return f"{path}: {message}" if path else message
