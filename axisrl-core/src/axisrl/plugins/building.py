"""Import what a descriptor names: a plugin's module, a component's target, its config class.

Every failure, ``SystemExit`` at import included, becomes a ``PluginError`` that names the component
and the reason. Nothing here decides which plugin or component is meant.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import SourceLoader
from pathlib import Path
from types import ModuleType
from typing import Any

from axisrl.errors import AxisrlError, PluginError
from axisrl.plugins.components import Component
from axisrl.plugins.discovery import is_importable
from axisrl.plugins.known import suggestion
from axisrl.plugins.records import PluginRecord


def import_plugin(record: PluginRecord) -> ModuleType:
    """The plugin's module. Lets every exception of it through."""
    if record.text is None or record.path is None:
        return importlib.import_module(record.value)
    if record.value in sys.modules:
        return sys.modules[record.value]
    return _import_text(record.value, record.text, record.path)


def _import_text(name: str, text: bytes, path: Path) -> ModuleType:
    spec = importlib.util.spec_from_loader(name, _TextLoader(text, path))
    if spec is None or spec.loader is None:
        raise ImportError(f"no module can be made of {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


class _TextLoader(SourceLoader):
    """Runs the bytes that were read and hashed, never what the path holds by now."""

    def __init__(self, text: bytes, path: Path) -> None:
        self._text = text
        self._path = str(path)

    def get_filename(self, fullname: str) -> str:
        return self._path

    def get_data(self, path: str | bytes) -> bytes:
        return self._text


def check_extras(component_id: str, component: Component, record: PluginRecord) -> None:
    """Raise ``PluginError`` with the pip command when a module of the component's extras is
    missing."""
    missing = missing_modules(component)
    if not missing:
        return
    raise PluginError(
        f"{component_id} needs {', '.join(missing)}, which is not installed",
        fix=extras_command(component.extras, missing, record.distribution),
    )


def extras_command(extras: Sequence[str], missing: Sequence[str], distribution: str) -> str:
    """What installs the missing modules: the plugin's extras, or the modules themselves."""
    if extras and distribution:
        return f"pip install '{distribution}[{','.join(extras)}]'"
    return f"pip install {' '.join(module.partition('.')[0] for module in missing)}"


def missing_modules(component: Component) -> list[str]:
    """Modules of the component's extras that cannot be found."""
    return [module for module in component.modules if not is_importable(module)]


def import_attribute(component_id: str, target: str) -> Any:
    """The object a ``"module:attr"`` string names."""
    module_name, _, path = target.partition(":")
    with _blame(component_id, f"cannot import {target}"):
        found: Any = importlib.import_module(module_name)
    for part in path.split("."):
        if not hasattr(found, part):
            near = suggestion(part, dir(found))
            raise PluginError(
                f"{component_id}: {target} does not exist: {module_name} has no {part!r}",
                fix=near or "correct the target in the plugin's descriptor",
            )
        found = getattr(found, part)
    return found


def construct(component_id: str, target: Any, config: Any, context: Any) -> Any:
    """``target(config, context)``; what it raises on purpose passes, the rest is attributed."""
    with _blame(component_id, "cannot be built"):
        return target(config, context)


@contextmanager
def _blame(component_id: str, what: str) -> Iterator[None]:
    try:
        yield
    except (AxisrlError, KeyboardInterrupt):
        raise
    except BaseException as error:  # a plugin's SystemExit must not end the run silently
        raise PluginError(f"{component_id} {what}: {last_line(error)}") from error


def last_line(error: BaseException) -> str:
    """``"ImportError: no module ..."`` on one line."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[-1]}" if text else type(error).__name__
