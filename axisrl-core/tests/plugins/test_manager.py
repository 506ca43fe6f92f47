from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from axisrl.config.base import NoConfig
from axisrl.errors import ConfigError, PluginError, UsageError
from axisrl.plugins import ComponentRef
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.records import PluginOptions, PluginRecord
from axisrl.types import BuildContext

WORLD = {
    "config.py": """
        from dataclasses import dataclass
        from axisrl.config.base import Config

        @dataclass(frozen=True, kw_only=True, slots=True)
        class WorldConfig(Config):
            size: int = 3
    """,
    "env.py": """
        class World:
            def __init__(self, config, context):
                self.config, self.context = config, context
    """,
}
CONFIGURED = """
from axisrl.plugins import EnvComponent, hookimpl

@hookimpl
def axisrl_envs():
    return [
        EnvComponent(
            name="world", target="{module}.env:World", config="{module}.config:WorldConfig"
        )
    ]
"""
OBSERVER = """
from axisrl.plugins import hookimpl

@hookimpl
def axisrl_run_started(run):
    print("seen")
"""


def record(manager: PluginManager, name: str) -> PluginRecord:
    return next(r for r in manager.records() if r.name == name)


def ref(use: str, **options: object) -> ComponentRef:
    return ComponentRef(kind="env", use=use, options=options)


def context(tmp_path: Path) -> BuildContext:
    return BuildContext(run_dir=tmp_path)


def test_discovering_imports_no_plugin(site):
    site.add("alpha", "raise RuntimeError('imported')")
    manager = PluginManager.discover()
    assert record(manager, "alpha").state == "found"
    assert record(manager, "core").state == "found"


def test_activating_imports_the_named_plugin_and_core_and_no_other(site):
    site.add("alpha")
    site.add("beta")
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    states = {r.name: r.state for r in manager.records()}
    assert (states["core"], states["alpha"], states["beta"]) == ("active", "active", "found")
    assert "axisrl_beta" not in sys.modules


def test_activating_twice_is_the_same_as_once(site):
    site.add("alpha")
    manager = PluginManager.discover()
    manager.activate(["alpha", "alpha"])
    manager.activate(["alpha"])
    assert record(manager, "alpha").state == "active"


def test_one_broken_plugin_rolls_the_others_of_the_call_back(site, capsys):
    site.add("alpha", OBSERVER)
    site.add("bad", "import not_a_module")
    manager = PluginManager.discover()
    with pytest.raises(PluginError, match="plugin bad"):
        manager.activate(["alpha", "bad"])
    assert record(manager, "alpha").state == "found"
    assert record(manager, "alpha").kinds == ()
    manager.run_started(None)
    assert capsys.readouterr().out == ""
    manager.activate(["alpha"])
    manager.run_started(None)
    assert capsys.readouterr().out == "seen\n"


def test_all_failures_of_one_call_are_named(site):
    site.add("bad", "import not_a_module")
    site.add("worse", "raise ValueError('x')")
    with pytest.raises(PluginError, match=r"plugin bad .*; also: plugin worse"):
        PluginManager.discover().activate(["bad", "worse"])


def test_plugins_that_are_not_required_are_warned_about_and_left_out(site, caplog):
    site.add("alpha")
    site.add("bad", "import not_a_module")
    manager = PluginManager.discover()
    with caplog.at_level(logging.WARNING, "axisrl.plugins"):
        manager.activate(["bad", "alpha"], required=False)
    assert record(manager, "alpha").state == "active"
    assert "plugin bad" in caplog.text


def test_second_plugin_with_same_name_is_a_conflict(site):
    site.add("alpha")
    site.add("alpha", distribution="other-alpha", version="3.0")
    manager = PluginManager.discover()
    assert {r.state for r in manager.records() if r.name == "alpha"} == {"conflict"}
    with pytest.raises(PluginError, match=r"axisrl-plugin-alpha 1\.0.*other-alpha 3\.0") as error:
        manager.activate(["alpha"])
    assert "--no-plugin" in error.value.fix


def test_disabling_one_of_two_distributions_lets_the_other_work(site):
    site.add("alpha")
    site.add("alpha", distribution="other-alpha")
    manager = PluginManager.discover(options=PluginOptions(no_plugin=("other-alpha",)))
    manager.activate(["alpha"])
    active = [r for r in manager.records() if r.state == "active" and r.name == "alpha"]
    assert [r.distribution for r in active] == ["axisrl-plugin-alpha"]


def test_a_disabled_plugin_is_left_out_but_an_error_where_a_component_needs_it(site):
    site.add("alpha")
    manager = PluginManager.discover(options=PluginOptions(disable=("alpha",)))
    manager.activate_for([], plugins=["alpha"])
    assert record(manager, "alpha").state == "disabled"
    with pytest.raises(PluginError, match=r"env alpha/world: plugin alpha .* is disabled"):
        manager.activate_for([ref("alpha/world")])
    with pytest.raises(PluginError, match="is disabled"):
        manager.find("env", "alpha/world")


def test_a_plugin_that_is_not_installed_fails_with_the_pip_command(site):
    with pytest.raises(PluginError, match="pip install axisrl-plugin-search-r1"):
        PluginManager.discover().activate(["search-r1"])


def test_a_run_activates_what_it_names_and_nothing_else(site):
    for name in ("by-id", "by-list", "by-flag", "by-site", "unnamed"):
        site.add(name, OBSERVER)
    options = PluginOptions(activate=("by-site",))
    manager = PluginManager.discover(local=["by-flag"], options=options)
    assert manager.requested == ("by-flag",)
    manager.activate_for([ref("by-id/x@1"), ref("bare")], plugins=["by-list"])
    states = {r.name: r.state for r in manager.records()}
    assert states.pop("unnamed") == "found"
    assert {states[n] for n in ("by-id", "by-list", "by-flag", "by-site")} == {"active"}


def test_a_broken_site_wide_plugin_is_warned_about_and_fatal_when_strict(site, caplog):
    site.add("bad", "import not_a_module")
    PluginManager.discover(options=PluginOptions(activate=("bad",))).activate_for([])
    assert "plugin bad" in caplog.text
    strict = PluginManager.discover(options=PluginOptions(activate=("bad",), strict=True))
    with pytest.raises(PluginError, match="plugin bad"):
        strict.activate_for([])


def test_a_site_wide_plugin_that_is_not_installed_is_fatal_when_strict(caplog):
    PluginManager.discover(options=PluginOptions(activate=("absent",))).activate_for([])
    assert "plugin 'absent' is not installed" in caplog.text
    strict = PluginManager.discover(options=PluginOptions(activate=("absent",), strict=True))
    with pytest.raises(PluginError, match="'absent' is not installed"):
        strict.activate_for([])


def test_strict_refuses_a_run_beside_a_plugin_that_cannot_be_used(site):
    site.add("old", requires=["axisrl-core>=9"])
    PluginManager.discover().activate_for([])
    with pytest.raises(PluginError, match=r"AXISRL_STRICT_PLUGINS: plugin old .* does not fit"):
        PluginManager.discover(options=PluginOptions(strict=True)).activate_for([])


@pytest.mark.parametrize("requirement", ["audit>=1.2", "axisrl-plugin-audit>=1.2", "audit"])
def test_a_required_plugin_that_is_active_is_enough(site, requirement):
    site.add("audit", OBSERVER, version="1.3")
    options = PluginOptions(activate=("audit",), require=(requirement,))
    PluginManager.discover(options=options).activate_for([])


@pytest.mark.parametrize(
    ("activate", "requirement", "said"),
    [
        (("audit",), "audit>=1.4", r"asks for audit>=1.4, active is audit \(.* 1.3\)"),
        ((), "audit>=1.2", "which this run does not activate"),
        ((), "absent", "which this run does not activate"),
    ],
)
def test_a_required_plugin_that_is_absent_or_old_fails_early(site, activate, requirement, said):
    site.add("audit", OBSERVER, version="1.3")
    options = PluginOptions(activate=activate, require=(requirement,))
    with pytest.raises(PluginError, match=said):
        PluginManager.discover(options=options).activate_for([])


def test_a_requirement_that_is_none_is_a_usage_error(site):
    with pytest.raises(UsageError, match="'audit=>1' is not a requirement"):
        PluginManager.discover(options=PluginOptions(require=("audit=>1",))).activate_for([])


def test_core_is_active_without_being_asked_for():
    assert PluginManager.discover().find("packer", "linear").plugin == "core"


def test_finding_a_component_of_an_installed_plugin_that_is_not_active_says_so(site):
    site.add("alpha")
    with pytest.raises(PluginError, match=r"env.use: alpha/world: plugin alpha .* not active"):
        PluginManager.discover().find("env", "alpha/world", "env.use")


def test_finding_in_a_plugin_that_is_not_installed_gives_the_pip_command():
    with pytest.raises(PluginError, match="env: plugin 'search-r1' is not installed") as error:
        PluginManager.discover().find("env", "search-r1/search", "env")
    assert error.value.fix == "pip install axisrl-plugin-search-r1"


def test_an_ambiguous_bare_name_is_a_config_error_with_the_candidates(site):
    site.add("alpha")
    site.add("beta")
    manager = PluginManager.discover()
    manager.activate(["alpha", "beta"])
    with pytest.raises(ConfigError, match="alpha/world, beta/world"):
        manager.find("env", "world")


def test_building_validates_the_options_and_passes_config_and_context(site, tmp_path):
    site.add("alpha", CONFIGURED, files=WORLD)
    manager = PluginManager.discover()
    manager.activate_for([ref("alpha/world")])
    given = context(tmp_path)
    world = manager.build("env", ref("alpha/world", size=5), given)
    assert (world.config.size, world.context) == (5, given)


def test_a_wrong_option_is_a_config_error_with_its_path(site, tmp_path):
    site.add("alpha", CONFIGURED, files=WORLD)
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    with pytest.raises(ConfigError, match=r"env\.sise.*did you mean .*size"):
        manager.build("env", ref("alpha/world", sise=5), context(tmp_path), "env")
    with pytest.raises(ConfigError, match=r"env\.size"):
        manager.build("env", ref("world", size="big"), context(tmp_path), "env")


def test_a_factory_validates_the_options_at_once_and_builds_anew_each_time(site, tmp_path):
    site.add("alpha", CONFIGURED, files=WORLD)
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    make = manager.factory("env", ref("alpha/world", size=5), "env")
    first, second = make(context(tmp_path)), make(context(tmp_path))
    assert first is not second
    assert first.config == second.config
    with pytest.raises(ConfigError, match="sise"):
        manager.factory("env", ref("alpha/world", sise=5), "env")


def test_a_component_without_a_config_takes_no_options(site, tmp_path):
    site.add("alpha", files=WORLD)
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    assert manager.build("env", ref("world"), context(tmp_path)).config == NoConfig()
    with pytest.raises(ConfigError, match="size"):
        manager.build("env", ref("world", size=1), context(tmp_path))


def test_a_missing_extra_is_an_error_when_the_component_is_built(site, tmp_path):
    source = CONFIGURED.replace('name="world"', 'name="world", extras=("x",), modules=("absent",)')
    site.add("alpha", source, files=WORLD)
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    with pytest.raises(PluginError, match="alpha/world needs absent") as error:
        manager.build("env", ref("world"), context(tmp_path))
    assert error.value.fix == "pip install 'axisrl-plugin-alpha[x]'"
    with pytest.raises(PluginError, match="needs absent"):
        manager.load(manager.find("env", "world"))


def test_a_config_that_is_no_dataclass_is_the_plugins_fault(site):
    site.add("alpha", CONFIGURED.replace("config:WorldConfig", "env:World"), files=WORLD)
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    with pytest.raises(PluginError, match=r"alpha/world: config .* is no dataclass"):
        manager.config_class(manager.find("env", "world"))


def test_loading_gives_the_target_itself(site):
    site.add("alpha", files=WORLD)
    manager = PluginManager.discover()
    manager.activate(["alpha"])
    assert manager.load(manager.find("env", "world")).__name__ == "World"


FILE = """
from axisrl.plugins import EnvComponent, hookimpl

class World:
    def __init__(self, config, context):
        self.name = __name__

@hookimpl
def axisrl_envs():
    return [EnvComponent(name="world", target=f"{__name__}:World")]
"""


def test_a_single_file_plugin_offers_components_of_its_own(site, tmp_path):
    path = tmp_path / "my_world.py"
    path.write_text(FILE)
    manager = PluginManager.discover(local=[str(path), str(path)])
    manager.activate_for([ref("my-world/world")])
    world = manager.build("env", ref("my-world/world"), context(tmp_path))
    assert world.name == record(manager, "my-world").value


def test_a_file_without_hooks_is_refused(site, tmp_path):
    path = tmp_path / "empty.py"
    path.write_text("x = 1\n")
    with pytest.raises(PluginError, match=r"plugin empty \(.*empty.py\) is broken: module"):
        PluginManager.discover(local=[path]).activate_for([])


def test_a_module_on_the_path_can_be_a_plugin(site):
    (site.path / "watch_it.py").write_text(OBSERVER)
    manager = PluginManager.discover(local=["watch_it"])
    manager.activate_for([])
    assert record(manager, "watch-it").state == "active"


def test_without_the_core_distribution_the_fix_is_to_install_it():
    with pytest.raises(PluginError, match="pip install axisrl-core"):
        PluginManager([]).activate([])


def test_core_is_required_even_where_nothing_else_is():
    with pytest.raises(PluginError, match="axisrl-core is not installed"):
        PluginManager([]).activate([], required=False)


def test_a_resumed_run_has_its_local_plugins_again_with_the_text_of_then(site, tmp_path):
    path = tmp_path / "my_world.py"
    path.write_text(FILE)
    (site.path / "watch_it.py").write_text(OBSERVER)
    first = PluginManager.discover(local=[path, "watch_it"])
    first.activate_for([])
    path.unlink()
    resumed = PluginManager.discover(before=first.manifest())
    resumed.activate_for([ref("my-world/world")])
    assert resumed.manifest() == first.manifest()


def test_a_resumed_run_takes_the_local_plugin_it_is_given(site, tmp_path):
    path = tmp_path / "my_world.py"
    path.write_text(FILE)
    first = PluginManager.discover(local=[path])
    first.activate_for([])
    path.write_text(FILE + "# newer")
    resumed = PluginManager.discover(local=[path], before=first.manifest())
    resumed.activate_for([])
    assert first.manifest().differences(resumed.manifest(), mine="then", theirs="now")


def test_a_resumed_run_has_its_observers_again_where_they_are_installed(site):
    site.add("watch", OBSERVER)
    first = PluginManager.discover(local=["watch"])
    first.activate_for([])
    gone = replace(first.manifest().plugins[0], name="gone", distribution="axisrl-plugin-gone")
    before = replace(first.manifest(), plugins=(*first.manifest().plugins, gone))
    resumed = PluginManager.discover(before=before)
    resumed.activate_for([])
    assert resumed.manifest() == first.manifest()


def test_a_resumed_run_may_leave_a_plugin_out(site, tmp_path):
    path = tmp_path / "my_world.py"
    path.write_text(FILE)
    first = PluginManager.discover(local=[path])
    first.activate_for([])
    options = PluginOptions(no_plugin=("my-world",))
    resumed = PluginManager.discover(before=first.manifest(), options=options)
    resumed.activate_for([])
    assert resumed.manifest().plugins == ()
