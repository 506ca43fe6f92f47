"""What plugins are written against: every hook, descriptor and protocol, with full signatures.

After a meant change: ``python axisrl-core/tests/plugins/test_hooks_lock.py`` writes the lock and
prints the line that CHANGELOG.md must then hold.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import MISSING, fields, is_dataclass
from hashlib import sha256
from pathlib import Path

import pytest

from axisrl import protocols
from axisrl.plugins import API_VERSION, KINDS, Component, ComponentRef
from axisrl.plugins.hookspecs import LifecycleSpecs, RegistrySpecs

LOCK = Path(__file__).with_name("hooks.lock")
CHANGELOG = Path(__file__).parents[3] / "CHANGELOG.md"


def current() -> str:
    lines = [f"api {API_VERSION}"]
    lines += [f"hook {line}" for spec in (RegistrySpecs, LifecycleSpecs) for line in methods(spec)]
    descriptors = [Component, *(info.descriptor for info in KINDS.values()), ComponentRef]
    lines += [f"descriptor {cls.__name__}{line}" for cls in descriptors for line in attributes(cls)]
    for name in protocols.__all__:
        cls = getattr(protocols, name)
        lines += [f"protocol {name}{line}" for line in attributes(cls)]
        lines += [f"protocol {name}.{line}" for line in methods(cls) if not is_dataclass(cls)]
    return "\n".join(lines) + "\n"


def methods(cls: type) -> Iterator[str]:
    for name, value in vars(cls).items():
        public = not name.startswith("_") or name in ("__call__", "__len__", "__getitem__")
        if inspect.isfunction(value) and public:
            kind = " async" if inspect.iscoroutinefunction(value) else ""
            yield f"{name}{inspect.signature(value)}{kind}".replace("'", "")


def attributes(cls: type) -> Iterator[str]:
    if is_dataclass(cls):
        for field in fields(cls):
            made = "" if field.default_factory is MISSING else " = <made>"
            default = made if field.default is MISSING else f" = {field.default!r}"
            yield f".{field.name}: {field.type}{default}"
    else:
        own = vars(cls).get("__annotations__", {})
        yield from (f".{name}: {annotation}" for name, annotation in own.items())


def changelog_line(lock: str) -> str:
    return f"Plugin interface {sha256(lock.encode()).hexdigest()[:8]}"


def test_hooks_descriptors_and_protocols_are_those_of_the_lock():
    assert current().splitlines() == LOCK.read_text().splitlines(), (
        "the plugin interface changed; if that is meant, run: "
        "python axisrl-core/tests/plugins/test_hooks_lock.py"
    )


def test_the_changelog_tells_of_the_interface_that_is_locked():
    if not CHANGELOG.is_file():
        pytest.skip(f"no {CHANGELOG.name} in this checkout")
    line = changelog_line(LOCK.read_text())
    assert line in CHANGELOG.read_text(), f"say in CHANGELOG.md what changed, with: {line}"


def test_every_hook_and_every_protocol_of_a_kind_is_locked():
    locked = LOCK.read_text()
    assert all(f"hook {info.hook}(" in locked for info in KINDS.values())
    for name in ("Env", "Verifier", "Reward", "Loss", "Packer", "RolloutEngine", "TrainerBackend"):
        assert f"protocol {name}." in locked


if __name__ == "__main__":
    LOCK.write_text(current())
    print(changelog_line(current()))  # noqa: T201  (a command's answer)
