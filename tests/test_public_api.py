"""The names others build on. A change here is a change for every plugin: say so in CHANGELOG.md."""

import dataclasses
import importlib
import inspect
from collections.abc import Iterator
from pathlib import Path

SNAPSHOT = Path(__file__).with_name("public_api.txt")
MODULES = (
    "axisrl.plugins",
    "axisrl.protocols",
    "axisrl.types",
    "axisrl.trace",
    "axisrl.errors",
    "axisrl.plugins.events",
    "axisrl.config.base",
)


def described() -> str:
    return "\n".join(line for name in MODULES for line in describe(name)) + "\n"


def describe(module_name: str) -> Iterator[str]:
    module = importlib.import_module(module_name)
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module_name
    ]
    yield module_name
    for name in sorted(getattr(module, "__all__", own)):
        value = getattr(module, name)
        yield f"  {name}{shape(value)}"


def shape(value: object) -> str:
    """Fields of a dataclass or named tuple, methods of another class, nothing for a value."""
    if dataclasses.is_dataclass(value):
        return f"({', '.join(field.name for field in dataclasses.fields(value))})"
    if inspect.isclass(value):
        if fields := getattr(value, "_fields", None):
            return f"({', '.join(fields)})"
        methods = [n for n, v in vars(value).items() if callable(v) and is_public(n)]
        return f": {', '.join(methods)}" if methods else ""
    return str(inspect.signature(value)) if inspect.isfunction(value) else ""


def is_public(method: str) -> bool:
    return not method.startswith("_") or method in ("__call__", "__len__", "__getitem__")


def test_the_public_names_are_those_of_the_snapshot():
    assert described() == SNAPSHOT.read_text(), (
        "the public API changed; if that is meant, say so in CHANGELOG.md and run: "
        "python tests/test_public_api.py"
    )


if __name__ == "__main__":
    SNAPSHOT.write_text(described())
