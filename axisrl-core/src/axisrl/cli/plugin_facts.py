"""What a plugin says about itself, gathered in a process of its own and passed on as JSON.

``python -m axisrl.cli.plugin_facts OUT NAME...`` imports the named plugins and writes OUT. A plugin
that ends its process, hangs or prints at import therefore costs the caller one line, not its life.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from axisrl.errors import AxisrlError
from axisrl.plugins.building import missing_modules
from axisrl.plugins.components import KINDS, Component
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import PluginOptions, PluginRecord

TIMEOUT_S = 60.0
Facts = dict[str, Any]


def kind_of(component: Facts) -> str:
    """What a component is shown as: its kind, or ``preset`` for a recipe that is one."""
    return "preset" if component["facts"].get("preset") else str(component["kind"])


def gather(names: Sequence[str]) -> list[Facts]:
    """Facts of each plugin by name (or file, or module), from a child process.

    When one of them takes the child down, the others are asked again one by one.
    """
    together = _ask(names)
    if together is not None:
        return together
    alone = {name: _ask([name]) for name in names}
    return [
        facts
        for name, answer in alone.items()
        for facts in (answer if answer is not None else [_dead(name)])
    ]


def _dead(name: str) -> Facts:
    note = f"it ends or blocks its process when it is imported (limit {TIMEOUT_S:.0f} s)"
    found = PluginManager.discover(local=[name]).records()
    record = next(record for record in found if name in (record.name, str(record.path)))
    return {
        **record.facts(),
        "state": "broken",
        "note": note,
        "seconds": None,
        "traceback": "",
        "components": [],
    }


def _ask(names: Sequence[str]) -> list[Facts] | None:
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "facts.json"
        command = [sys.executable, "-P", "-m", "axisrl.cli.plugin_facts", str(out), *names]
        try:
            subprocess.run(
                command,
                timeout=TIMEOUT_S,
                capture_output=True,
                check=True,
                stdin=subprocess.DEVNULL,
            )
            answer: list[Facts] = json.loads(out.read_text(encoding="utf-8"))
        except (subprocess.SubprocessError, OSError, ValueError):
            return None
        return answer


def _collect(names: Sequence[str]) -> list[Facts]:
    options = PluginOptions(disable=PluginOptions.from_mapping(os.environ).disable)
    manager = PluginManager.discover(local=names, options=options)
    manager.activate(manager.requested, required=False)
    wanted = set(manager.requested)
    return [_facts(manager, record) for record in manager.records() if record.name in wanted]


def _facts(manager: PluginManager, record: PluginRecord) -> Facts:
    return {
        **record.facts(),
        "seconds": record.seconds,
        "traceback": record.traceback,
        "components": list(_components(manager, record)),
    }


def _components(manager: PluginManager, record: PluginRecord) -> Iterator[Facts]:
    common = {field.name for field in fields(Component)}
    for kind, components in record.components.items():
        for component in components:
            own = [f.name for f in fields(KINDS[kind].descriptor) if f.name not in common]
            yield {
                "kind": kind,
                "id": f"{record.name}/{component.name}",
                "summary": component.summary,
                "target": component.target,
                "version": component.version,
                "extras": component.extras,
                "missing": missing_modules(component),
                "facts": {name: getattr(component, name) for name in own},
                **_options(manager, record, kind, component),
            }


def _options(
    manager: PluginManager, record: PluginRecord, kind: Any, component: Component
) -> Facts:
    if component.config is None:
        return {"options": [], "options_error": ""}
    from axisrl.config.fields import fields_of

    try:
        cls = manager.config_class(manager.find(kind, f"{record.name}/{component.name}"))
    except AxisrlError as error:
        return {"options": [], "options_error": error.message}
    options = [
        {
            "name": info.name,
            "type": info.type,
            "default": info.default,
            "required": info.required,
            "help": info.help,
        }
        for info in fields_of(cls)
    ]
    return {"options": options, "options_error": ""}


def main(arguments: Sequence[str]) -> None:
    """Write the facts of ``arguments[1:]`` to the file ``arguments[0]``."""
    out, names = arguments[0], arguments[1:]
    Path(out).write_text(json.dumps(_collect(names), default=str), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
