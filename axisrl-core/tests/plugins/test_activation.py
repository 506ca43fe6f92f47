from __future__ import annotations

import sys

import pytest

from axisrl.errors import PluginError
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import PluginRecord

OBSERVER = """
from axisrl.plugins import hookimpl

@hookimpl
def axisrl_run_started(run):
    print("seen")
"""
HOOKED = "from axisrl.plugins import hookimpl, EnvComponent, LossComponent\n"


def record(manager: PluginManager, name: str) -> PluginRecord:
    return next(r for r in manager.records() if r.name == name)


def test_an_active_plugin_knows_its_components_and_its_import_time(site):
    site.add("alpha")
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    active = record(manager, "alpha")
    assert active.kinds == ("env",)
    assert [component.name for component in active.components["env"]] == ["world"]
    assert active.seconds > 0


def test_activating_does_not_import_the_targets(site):
    site.add("alpha", files={"env.py": "raise RuntimeError"})
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    assert "axisrl_alpha.env" not in sys.modules


BROKEN = {
    "failing-import": ("import not_a_module", "ModuleNotFoundError: No module named"),
    "exits": ("import sys\nsys.exit('bye')", "SystemExit: bye"),
    "foreign": ("class P(BaseException): pass\nraise P('panic')", "P: panic"),
    "misspelt": (HOOKED + "@hookimpl\ndef axisrl_env(): return []", "did you mean 'axisrl_envs'"),
    "undecorated": (HOOKED + "def axisrl_envs(): return []", "lacks the @hookimpl decorator"),
    "keyword-only": (HOOKED + "@hookimpl\ndef axisrl_envs(*, x): pass", "keyword-only argument"),
    "no-hooks": ("x = 1", "has no @hookimpl function"),
    "returns-none": (HOOKED + "@hookimpl\ndef axisrl_envs(): pass", "axisrl_envs returned None"),
    "raises": (HOOKED + "@hookimpl\ndef axisrl_envs(): raise KeyError('k')", "KeyError: 'k'"),
    "wrong-class": (
        HOOKED + "@hookimpl\ndef axisrl_envs(): return [LossComponent(name='a', target='a:b')]",
        "axisrl_envs returned LossComponent, not EnvComponent",
    ),
    "bad-target": (
        HOOKED + "@hookimpl\ndef axisrl_envs(): return [EnvComponent(name='a', target='a.b')]",
        "target 'a.b' of 'a' is not 'package.module:attribute'",
    ),
    "two-of-a-name": (
        HOOKED + "@hookimpl\ndef axisrl_envs(): return [EnvComponent(name='a', target='a:b')] * 2",
        "'a' is offered twice",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_plugin_is_an_error_only_for_who_asks_for_it(site, name):
    source, said = BROKEN[name]
    site.add(name, source, version="2.1")
    site.add("alpha")
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    with pytest.raises(PluginError, match=f"plugin {name} .axisrl-plugin-{name} 2.1. is") as error:
        manager.activate([name])
    assert said in error.value.message
    assert error.value.fix == f"axisrl plugins show {name} --traceback"
    assert error.value.exit_code == 4
    assert record(manager, name).state == "broken"
    assert record(manager, "alpha").state == "active"
    assert manager.find("env", "world").id == "alpha/world"


def test_a_broken_file_is_shown_by_its_path(site, tmp_path):
    path = tmp_path / "mine.py"
    path.write_text("x / 0\n")
    with pytest.raises(PluginError) as error:
        PluginManager.discover(local=[str(path)]).activate(["mine"])
    assert error.value.fix == f"axisrl plugins show {path} --traceback"


def test_the_cause_of_a_failing_import_is_kept_with_its_traceback(site):
    site.add("alpha", "import not_a_module")
    manager = PluginManager.discover()
    with pytest.raises(PluginError) as error:
        manager.activate(["alpha"])
    assert isinstance(error.value.__cause__, ModuleNotFoundError)
    assert "import not_a_module" in record(manager, "alpha").traceback


def test_an_interrupt_during_an_import_is_not_swallowed(site):
    site.add("alpha", "raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        PluginManager.discover().activate(["alpha"])


@pytest.mark.parametrize(
    ("declared", "fix"),
    [
        (2, "pip install --upgrade axisrl-core"),
        (0, "pip install --upgrade axisrl-plugin-alpha"),
    ],
)
def test_another_plugin_api_is_incompatible(site, declared, fix):
    site.add("alpha", f"AXISRL_API = {declared}\n" + OBSERVER)
    manager = PluginManager.discover()
    with pytest.raises(PluginError, match=f"plugin API {declared}, this core has 1") as error:
        manager.activate(["alpha"])
    assert error.value.fix == fix
    assert record(manager, "alpha").state == "incompatible"


def test_a_declared_api_that_fits_is_active(site):
    site.add("alpha", "AXISRL_API = 1\n" + OBSERVER)
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    assert record(manager, "alpha").state == "active"


def test_a_plugin_for_another_core_is_not_even_imported(site):
    site.add("alpha", "raise RuntimeError", requires=["axisrl-core>=9"])
    with pytest.raises(PluginError, match="requires axisrl-core>=9, installed is") as error:
        PluginManager.discover().activate(["alpha"])
    assert error.value.fix == "pip install 'axisrl-core>=9'"
