"""What a plugin's distribution promises before any component is tried: names, light imports, whole
descriptors, configs that hold, data files that are there. It builds no component."""

from __future__ import annotations

import importlib.resources
import importlib.util
import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from axisrl.config.fields import fields_of
from axisrl.config.validate import validate
from axisrl.errors import ConfigError, PluginError
from axisrl.plugins.building import missing_modules
from axisrl.plugins.components import Component, ComponentRef, Kind, RecipeComponent
from axisrl.plugins.records import CORE, PluginRecord
from axisrl.plugins.resolve import Resolved
from axisrl.testing.cases import Case
from axisrl.testing.components import build_component, load_cases, manager, record_of
from axisrl.testing.harness import CheckFailed, CheckSkipped, Subject, Suite, require

_HEAVY = ("numpy", "pydantic", "ray", "torch", "transformers", "wandb")


@dataclass(frozen=True, kw_only=True)
class PluginCase(Case):
    """A whole plugin; ``use`` is its name."""


PluginSubject = Subject[PluginCase]
CHECKED_KINDS: frozenset[Kind] = frozenset(
    {
        "env",
        "verifier",
        "reward",
        "advantage",
        "loss",
        "correction",
        "packer",
        "store",
        "engine",
        "trainer",
        "dataset",
        "logger",
        "model",
        "service",
    }
)
"""Kinds a suite exists for."""


def names_agree(subject: PluginSubject) -> None:
    """Distribution ``axisrl-plugin-<name>``, entry point ``<name>``, package ``axisrl_<name>``."""
    record = _record(subject)
    if record.name == CORE or not record.distribution:
        raise CheckSkipped("it is not a distribution of its own")
    name = record.name
    plain = re.sub(r"[-_.]+", "-", record.distribution).lower()
    require(
        plain == f"axisrl-plugin-{name}",
        f"plugin {name!r} comes from the distribution {record.distribution!r}",
    )
    module = f"axisrl_{name.replace('-', '_')}.plugin"
    require(record.value == module, f"its entry point is {record.value!r}, not {module!r}")


def importing_it_is_light(subject: PluginSubject) -> None:
    """Its module loads none of the heavy packages, in a fresh interpreter."""
    record = _record(subject)
    if record.text is not None:
        raise CheckSkipped("a local file is imported from its text")
    code = f"import {record.value}, sys; print(*sorted(set({_HEAVY}) & set(sys.modules)))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    require(
        found.returncode == 0, f"importing {record.value} failed: {found.stderr.strip()[-200:]}"
    )
    loaded = found.stdout.split()
    require(not loaded, f"importing {record.value} loads {', '.join(loaded)}")


def every_component_has_a_summary(subject: PluginSubject) -> None:
    """One line for ``axisrl plugins show``."""
    for kind, component in _components(subject):
        told = component.summary
        require(
            told.strip() == told != "" and "\n" not in told,
            f"{kind} {component.name}: summary {told!r} is not one line",
        )


def every_target_can_be_imported(subject: PluginSubject) -> None:
    """Or its descriptor names the missing extra."""
    for kind, component in _components(subject):
        if kind == "recipe" or missing_modules(component):
            continue
        try:
            manager().load(_resolved(subject, kind, component))
        except PluginError as error:
            raise CheckFailed(f"{kind} {component.name}: {error.message}") from error


def every_config_holds(subject: PluginSubject) -> None:
    """It takes its defaults and the options of its cases, and comes back equal from YAML and from
    a pickle."""
    for kind, component in _components(subject):
        if component.config is None or kind in ("recipe", "command", "health"):
            continue
        cls = manager().config_class(_resolved(subject, kind, component))
        for options in _options(subject, kind, component, cls):
            _require_config(f"{kind} {component.name}", cls, options)


def references_cross_processes(subject: PluginSubject) -> None:
    """A reference to each component survives pickling."""
    for kind, component in _components(subject):
        ref = ComponentRef(kind=kind, use=f"{subject.case.use}/{component.name}")
        require(pickle.loads(pickle.dumps(ref)) == ref, f"{ref} changed by pickling")


def typing_and_data_files_are_installed(subject: PluginSubject) -> None:
    """``py.typed``, and the YAML of every recipe."""
    record = _record(subject)
    package = record.value.partition(".")[0]
    if record.text is None and importlib.util.find_spec(package) is not None:
        marker = importlib.resources.files(package) / "py.typed"
        require(marker.is_file(), f"{package} has no py.typed")
    for kind, component in _components(subject):
        if isinstance(component, RecipeComponent):
            for target in filter(None, (component.target, component.smoke)):
                _require_yaml(f"{kind} {component.name}", target)


def every_component_has_a_case(subject: PluginSubject) -> None:
    """In the plugin's ``conformance`` module: what is not tried is not known to work."""
    known = {(case.kind, case.use) for case in load_cases(_record(subject))}
    bare = [
        f"{kind} {component.name}"
        for kind, component in _components(subject)
        if kind in CHECKED_KINDS and (kind, f"{subject.case.use}/{component.name}") not in known
    ]
    package = _record(subject).value.rpartition(".")[0]
    require(not bare, f"no case in {package}.conformance for {', '.join(bare)}")


class PluginSuite(Suite):
    """Tries a plugin as a whole; a test module sets ``plugin`` to its name."""

    plugin = ""
    checks = (
        names_agree,
        importing_it_is_light,
        every_component_has_a_summary,
        every_target_can_be_imported,
        every_config_holds,
        references_cross_processes,
        typing_and_data_files_are_installed,
        every_component_has_a_case,
    )

    @classmethod
    def own_cases(cls) -> list[Case]:
        """The plugin itself."""
        return [PluginCase(use=cls.plugin)] if cls.plugin else []

    @classmethod
    def subject(cls, case: Case, work_dir: Path) -> Subject[Any]:
        """The plugin: there is no one component to describe."""
        return Subject(case=case, work_dir=work_dir, builder=build_component)


def _record(subject: PluginSubject) -> PluginRecord:
    return record_of(subject.case.use)


def _components(subject: PluginSubject) -> Iterator[tuple[Kind, Component]]:
    for kind, components in _record(subject).components.items():
        for component in components:
            yield kind, component


def _resolved(subject: PluginSubject, kind: Kind, component: Component) -> Resolved:
    return manager().find(kind, f"{subject.case.use}/{component.name}")


def _options(
    subject: PluginSubject, kind: Kind, component: Component, cls: type
) -> list[dict[str, Any]]:
    """Options the config must take: none where every field has a default, and those of cases."""
    use = f"{subject.case.use}/{component.name}"
    cases = load_cases(_record(subject))
    found = [dict(case.options) for case in cases if (case.kind, case.use) == (kind, use)]
    return found if any(field.required for field in fields_of(cls)) else [{}, *found]


def _require_config(what: str, cls: type, options: dict[str, Any]) -> None:
    try:
        config: Any = validate(cls, options)
    except ConfigError as error:
        raise CheckFailed(f"{what}: its config refuses {options}: {error.message}") from error
    back: Any = validate(cls, yaml.safe_load(yaml.safe_dump(options)) or {})
    require(back == config, f"{what}: {config} comes back from YAML as {back}")
    copy = pickle.loads(pickle.dumps(config))
    require(copy == config, f"{what}: {config} comes back from a pickle as {copy}")


def _require_yaml(what: str, target: str) -> None:
    package, _, path = target.partition(":")
    found = importlib.resources.files(package).joinpath(*Path(path).parts)
    require(found.is_file(), f"{what}: {target} is not installed")
    content = yaml.safe_load(found.read_text(encoding="utf-8"))
    require(isinstance(content, dict), f"{what}: {target} holds no keys")
