"""Finds a plugin's components and its cases through the plugin manager. It builds nothing by hand.

One manager serves a whole process, made at first use: discovery reads metadata only.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import Any

from axisrl.errors import PluginError
from axisrl.plugins.components import Component, ComponentRef
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import PluginRecord
from axisrl.testing.cases import Case
from axisrl.types import BuildContext


@functools.cache
def manager() -> PluginManager:
    """The manager of this process; plugins become active as cases name them."""
    return PluginManager.discover()


def record_of(plugin: str) -> PluginRecord:
    """The record of a plugin, active. Raises ``PluginError`` when it cannot be used."""
    manager().activate([plugin])
    return next(found for found in manager().records() if found.name == plugin)


def build_component(ref: ComponentRef, context: BuildContext) -> Any:
    """A :data:`axisrl.testing.harness.Builder` that knows every installed plugin."""
    record_of(ref.use.partition("/")[0])
    return manager().build(ref.kind, ref, context)


def describe(case: Case) -> Component:
    """What the plugin says about the case's component."""
    record_of(case.use.partition("/")[0])
    return manager().find(case.kind, case.use).component


def load_cases(record: PluginRecord) -> tuple[Case, ...]:
    """``CASES`` of the module ``conformance`` beside the plugin's ``plugin`` module; empty where
    there is none.

    Raises ``PluginError`` when the module holds anything else.
    """
    name = f"{record.value.rpartition('.')[0] or record.value}.conformance"
    try:
        found = importlib.util.find_spec(name)
    except ModuleNotFoundError:
        found = None
    if found is None:
        return ()
    cases = getattr(importlib.import_module(name), "CASES", None)
    if not isinstance(cases, list | tuple) or not all(isinstance(case, Case) for case in cases):
        raise PluginError(
            f"{name} has no CASES, a list of cases from axisrl.testing",
            fix="write CASES = [VerifierCase(use=...), ...]",
        )
    return tuple(cases)
