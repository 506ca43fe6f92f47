"""The examples in the documentation of the hooks are run, so that they stay right."""

from __future__ import annotations

import inspect
import sys
from textwrap import dedent
from types import ModuleType

import pytest

from axisrl.plugins import KINDS
from axisrl.plugins.hookspecs import LifecycleSpecs, RegistrySpecs
from axisrl.plugins.lint import HOOKS, hook_functions, lint_components, lint_hooks

SPECS = {**vars(RegistrySpecs), **vars(LifecycleSpecs)}


def example(hook: str) -> ModuleType:
    documentation = inspect.getdoc(SPECS[hook]) or ""
    module = ModuleType("example")
    exec(dedent(documentation.split("Example::")[1]), module.__dict__)
    return module


@pytest.mark.parametrize("hook", HOOKS)
def test_the_example_of_a_hook_implements_that_hook(hook):
    module = example(hook)
    assert not lint_hooks(module)
    assert [found.hook for found in hook_functions(module)] == [hook]


@pytest.mark.parametrize("kind", KINDS)
def test_the_example_of_a_registration_hook_returns_good_descriptors(kind):
    (hook,) = hook_functions(example(KINDS[kind].hook))
    assert not lint_components(kind, hook.function())


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_documents_arguments_and_the_version_it_came_with(hook):
    documentation = " ".join((inspect.getdoc(SPECS[hook]) or "").split())
    first, _, rest = documentation.partition(" Arguments: ")
    assert first.endswith(".")
    assert " Since: 0.1. " in rest
    for argument in HOOKS[hook]:
        assert f"``{argument}``" in rest


def test_the_hooks_load_no_payload_types():
    code = "import sys, axisrl.plugins.hookspecs as h; print(sorted(sys.modules))"
    import subprocess

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    for heavy in ("numpy", "pydantic", "torch", "ray", "click", "yaml", "axisrl.types"):
        assert f"'{heavy}'" not in loaded
