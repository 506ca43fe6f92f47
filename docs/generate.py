"""Writes docs/reference/ from the code itself: commands, hooks, components, run configuration.

It describes what is installed and first-party; it does not write prose. A test compares its output
with the files, so a page cannot say what the code no longer does.

    python docs/generate.py
    python docs/generate.py --check
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from axisrl.cli.main import main as root_command
from axisrl.cli.plugin_facts import gather, kind_of
from axisrl.config import schema
from axisrl.config.base import Config
from axisrl.config.fields import fields_of
from axisrl.plugins import hookspecs
from axisrl.plugins.components import KINDS

ROOT = Path(__file__).parents[1]
REFERENCE = ROOT / "docs/reference"
WIDTH = 88
NOTE = "<!-- Written by docs/generate.py (make docs). Change the code, not this page. -->"
ROLE = re.compile(r":[a-z]+:`~?(?:[\w.]+\.)?([\w]+)`")


def pages() -> dict[Path, str]:
    """Every reference page and its text."""
    made = {
        "cli.md": ("Commands", _commands()),
        "hooks.md": ("Hooks", _hooks()),
        "components.md": ("Components", _components()),
        "config.md": ("Run configuration", _config()),
    }
    return {
        REFERENCE / name: "\n\n".join([f"# {title}", NOTE, *parts]) + "\n"
        for name, (title, parts) in made.items()
    }


def _commands() -> Iterator[str]:
    yield "Every command and its `--help`. Errors are one line and a fix; see the exit codes below."
    yield from _command(root_command, "axisrl", None)
    yield "## Exit codes"
    yield table(
        ("code", "meaning"),
        [
            ("0", "done"),
            ("1", "the run failed"),
            ("2", "wrong command line or configuration"),
            ("3", "this machine lacks something: a package, a device, a model, data"),
            ("4", "a plugin that was asked for cannot be used"),
            ("130", "interrupted; a checkpoint was written where one could be"),
        ],
    )


def _command(command: click.Command, path: str, parent: click.Context | None) -> Iterator[str]:
    context = click.Context(
        command,
        parent=parent,
        info_name=path.rpartition(" ")[2],
        **command.context_settings,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
    )
    # The plugins' own commands are whatever is installed.
    open_ended = path == "axisrl x"
    text = command.help if open_ended else command.get_help(context)
    yield f"## `{path}`"
    yield f"```text\n{(text or '').strip()}\n```"
    if isinstance(command, click.Group) and not open_ended:
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None:
                yield from _command(child, f"{path} {name}", context)


def _hooks() -> Iterator[str]:
    yield prose(inspect.getdoc(hookspecs) or "")
    for cls in (hookspecs.RegistrySpecs, hookspecs.LifecycleSpecs):
        yield f"## {cls.__name__}"
        yield prose(inspect.getdoc(cls) or "")
        for name, hook in vars(cls).items():
            if name.startswith("axisrl_"):
                signature = str(inspect.signature(hook)).replace("self, ", "").replace("self", "")
                yield f"### `{name}{signature.replace(chr(39), '')}`"
                yield from _documented(inspect.getdoc(hook) or "")


def _documented(text: str) -> Iterator[str]:
    before, _, example = text.partition("Example::")
    yield prose(before.strip())
    if example:
        yield f"```python\n{textwrap.dedent(example).strip()}\n```"


def _components() -> Iterator[str]:
    yield "What each kind is registered with, and what the core and the first-party plugins offer."
    yield table(
        ("kind", "hook", "descriptor"),
        [(kind, f"`{info.hook}`", f"`{info.descriptor.__name__}`") for kind, info in KINDS.items()],
    )
    for plugin in gather(["core", *first_party()]):
        yield f"## {plugin['name']}"
        for component in plugin["components"]:
            yield from _component(component)


def _component(component: Mapping[str, Any]) -> Iterator[str]:
    yield f"### {kind_of(component)} `{component['id']}`"
    extras = component["extras"]
    needs = f" Needs the extra `{'`, `'.join(extras)}`." if extras else ""
    yield f"{component['summary']}.{needs}"
    if component["options"]:
        yield _options(component["options"])


def _config() -> Iterator[str]:
    yield prose(inspect.getdoc(schema) or "")
    offered = [getattr(schema, name) for name in schema.__all__]
    configs = [cls for cls in offered if isinstance(cls, type) and issubclass(cls, Config)]
    for cls in sorted(configs, key=lambda cls: cls is not schema.RunConfig):
        yield f"## {cls.__name__}"
        yield prose(inspect.getdoc(cls) or "")
        yield _options([dataclasses.asdict(field) for field in fields_of(cls)])


def _options(options: Iterable[Mapping[str, Any]]) -> str:
    return table(
        ("option", "type", "default", "meaning"),
        [
            (
                f"`{option['name']}`",
                f"`{option['type']}`",
                "required" if option["required"] else _default(option["default"]),
                prose(option["help"]),
            )
            for option in options
        ],
    )


def _default(value: Any) -> str:
    return "its own, below" if isinstance(value, dict) and len(value) > 1 else f"`{value!r}`"


def first_party() -> list[str]:
    """Names of the plugins in this repository."""
    return sorted(
        path.name.removeprefix("axisrl-plugin-") for path in ROOT.glob("plugins/axisrl-plugin-*")
    )


def prose(text: str) -> str:
    """A docstring as Markdown: roles and double backticks become code."""
    return ROLE.sub(r"`\1`", text).replace("``", "`")


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table; bars inside cells are escaped."""
    lines = [list(head)]
    lines += [
        ["---"] * len(lines[0]),
        *([cell.replace("|", "\\|") for cell in row] for row in rows),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def main(arguments: list[str]) -> int:
    """Write the pages; with ``--check`` only name those that are not as they would be written."""
    stale = {path: text for path, text in pages().items() if _read(path) != text}
    if "--check" in arguments:
        print(*(path.name for path in stale), sep="\n", end="")  # noqa: T201 - a script's answer
        return 1 if stale else 0
    REFERENCE.mkdir(parents=True, exist_ok=True)
    for path, text in stale.items():
        path.write_text(text, encoding="utf-8")
    return 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
