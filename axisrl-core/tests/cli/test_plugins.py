from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from axisrl.cli.plugins import plugins
from axisrl.errors import PluginError, UsageError

DOCUMENTED = {
    "config.py": '''
        from dataclasses import dataclass
        from typing import Literal
        from axisrl.config.base import Config

        @dataclass(frozen=True, kw_only=True, slots=True)
        class WorldConfig(Config):
            split: Literal["train", "test"] = "train"
            """Which tasks."""
            size: int
            """Side of the world, in cells."""
    '''
}
SOURCE = """
from axisrl.plugins import EnvComponent, VerifierComponent, hookimpl

@hookimpl
def axisrl_envs():
    return [
        EnvComponent(
            name="world",
            target="{module}.env:World",
            config="{module}.config:WorldConfig",
            summary="A world of cells",
            max_turns_hint=7,
        )
    ]

@hookimpl
def axisrl_verifiers():
    return [
        VerifierComponent(
            name="judge", target="{module}.verify:Judge", extras=("box",), modules=("absent_box",)
        )
    ]
"""
LISTED = """
from axisrl.cli.plugins import plugins
plugins(["list", "--all"], standalone_mode=False)
import sys
print(*(m for m in ("torch", "ray", "pydantic", "numpy", "yaml") if m in sys.modules))
"""


def call(*arguments: str) -> Result:
    return CliRunner().invoke(plugins, arguments, catch_exceptions=False)


def test_without_a_command_the_plugins_are_listed(site):
    site.add("alpha", version="1.2")
    said = call()
    assert said.exit_code == 0
    assert "name" in said.stdout.splitlines()[0]
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("alpha ")]
    assert line.split() == ["alpha", "axisrl-plugin-alpha", "1.2", "found"]
    assert call("list").stdout == said.stdout


def test_help_is_help():
    said = call("--help").stdout
    assert "show" in said and "check" in said


def test_listing_imports_no_plugin(site):
    site.add("alpha", "raise RuntimeError('imported')")
    assert call().exit_code == 0
    assert "axisrl_alpha" not in sys.modules


def test_a_broken_installed_plugin_does_not_break_the_list_or_the_help(site):
    site.add("alpha")
    site.add("bad", "import sys\nsys.exit(3)")
    site.add_raw("damaged", "1.0", "[axisrl]\nno equals sign\n")
    said = call()
    assert said.exit_code == 0
    assert "alpha" in said.stdout and "entry_points.txt cannot be read" in said.stdout
    assert call("--help").exit_code == call("list", "--help").exit_code == 0


def test_a_conflict_and_an_incompatible_plugin_are_lines_with_a_note(site):
    site.add("alpha")
    site.add("alpha", distribution="other-alpha")
    site.add("old", requires=["axisrl-core>=9"])
    rows = {(r["distribution"], r["state"]): r for r in json.loads(call("--json").stdout)}
    assert rows["other-alpha", "conflict"]["note"].endswith("both offer it")
    assert rows["axisrl-plugin-old", "incompatible"]["fix"] == "pip install 'axisrl-core>=9'"


def test_a_disabled_plugin_is_listed_as_disabled(site, monkeypatch):
    site.add("alpha")
    monkeypatch.setenv("AXISRL_DISABLE_PLUGINS", "alpha")
    rows = {row["name"]: row["state"] for row in json.loads(call("--json").stdout)}
    assert rows["alpha"] == "disabled"


def test_core_is_listed_with_all(site):
    names = {row["name"] for row in json.loads(call("--json").stdout)}
    with_core = {row["name"] for row in json.loads(call("--json", "--all").stdout)}
    assert with_core - names == {"core"}


def test_requirements_are_pinned_distributions(site):
    site.add("alpha", version="1.2")
    assert "axisrl-plugin-alpha==1.2" in call("--requirements").stdout.splitlines()


def test_control_characters_of_a_plugin_do_not_reach_the_terminal(site):
    site.add_raw("odd", "1.0", "[axisrl]\nodd = x\x1b[31m[bold]red\n")
    said = call().stdout
    assert "\x1b" not in said
    assert "[bold]" in said


def test_a_kind_lists_its_components_and_what_extra_they_need(site):
    site.add("alpha", SOURCE, files=DOCUMENTED)
    site.add("bad", "import not_a_module")
    said = call("--kind", "verifier")
    (line,) = [line for line in said.stdout.splitlines() if line.startswith("alpha/judge")]
    assert line.endswith("needs extra box")
    assert "alpha/world" not in said.stdout
    assert "bad" in said.stderr
    assert "axisrl_alpha" not in sys.modules


def test_a_kind_as_json_has_the_options_of_each_component(site):
    site.add("alpha", SOURCE, files=DOCUMENTED)
    (facts,) = [
        f for f in json.loads(call("--kind", "env", "--json").stdout) if f["name"] == "alpha"
    ]
    (component,) = facts["components"]
    assert (facts["state"], component["id"]) == ("active", "alpha/world")
    assert [option["name"] for option in component["options"]] == ["split", "size"]


@pytest.mark.parametrize("death", ["os._exit(0)", "os.kill(os.getpid(), 9)", "print('[]')"])
def test_a_plugin_that_kills_its_process_or_prints_costs_a_line(site, death):
    site.add("alpha", SOURCE, files=DOCUMENTED)
    site.add("deadly", f"import os\n{death}\nraise ValueError")
    said = call("--kind", "env")
    assert said.exit_code == 0
    assert "alpha/world" in said.stdout
    assert "deadly" in said.stderr


def test_show_tells_components_options_extras_and_links(site):
    site.add("alpha", SOURCE, version="1.2", files=DOCUMENTED)
    info = site.path / "axisrl_plugin_alpha-1.2.dist-info" / "METADATA"
    info.write_text(info.read_text().rstrip() + "\nProject-URL: Source, https://example.org/a\n")
    said = call("show", "alpha").stdout
    assert said.startswith("alpha  axisrl-plugin-alpha 1.2  active")
    assert "Source: https://example.org/a" in said
    assert "env  alpha/world  A world of cells" in said
    assert "max_turns_hint=7" in said
    assert "needs extra box: pip install 'axisrl-plugin-alpha[box]'" in said
    (split,) = [line for line in said.splitlines() if line.lstrip().startswith("split ")]
    assert split.split() == ["split", "Literal['train',", "'test']", "train", "Which", "tasks."]
    (size,) = [line for line in said.splitlines() if line.lstrip().startswith("size ")]
    assert "(required)" in size and "Side of the world, in cells." in size


def test_presets_are_told_apart_from_recipes(toy):
    said = call("--kind", "recipe").stdout.splitlines()
    notes = {line.split()[0]: line.endswith("preset: --config") for line in said}
    assert notes["toy/wide"] and not notes["toy/base"]
    said = call("show", "toy").stdout
    assert "\npreset  toy/wide" in said
    assert "use: axisrl run RECIPE --config toy/wide" in said
    assert "\nrecipe  toy/base" in said
    assert "--config toy/base" not in said


def test_show_of_a_broken_plugin_says_why_and_where(site):
    site.add("bad", "import not_a_module")
    said = call("show", "bad").stdout
    assert "bad  axisrl-plugin-bad 1.0  broken" in said
    assert "No module named 'not_a_module'" in said
    assert "Traceback" not in said
    assert "import not_a_module" in call("show", "bad", "--traceback").stdout


def test_show_of_a_deadly_plugin_says_so(site):
    site.add("deadly", "import os\nos._exit(1)")
    said = call("show", "deadly")
    assert said.exit_code == 0
    assert "it ends or blocks its process" in said.stdout


def test_modules_of_the_current_folder_do_not_hide_installed_ones(site, tmp_path, monkeypatch):
    site.add("alpha", SOURCE, files=DOCUMENTED)
    (tmp_path / "axisrl.py").write_text("raise RuntimeError")
    monkeypatch.chdir(tmp_path)
    assert call("show", "alpha").stdout.startswith("alpha  axisrl-plugin-alpha 1.0  active")


def test_show_of_a_component_with_a_broken_config_shows_the_rest(site):
    site.add("alpha", SOURCE, files={"config.py": "import not_a_module"})
    said = call("show", "alpha").stdout
    assert "options: alpha/world cannot import axisrl_alpha.config:WorldConfig" in said
    assert "alpha/judge" in said


def test_show_takes_a_file(tmp_path):
    path = tmp_path / "my_world.py"
    path.write_text(SOURCE.replace("{module}", "nowhere"))
    said = call("show", str(path)).stdout
    assert said.startswith("my-world  local  active")
    assert "my-world/world" in said


def test_show_of_an_unknown_plugin_gives_the_pip_command():
    with pytest.raises(PluginError, match="pip install axisrl-plugin-search-r1"):
        call("show", "search-r1")
    with pytest.raises(UsageError, match="no such Python file"):
        call("show", "./nowhere.py")


def test_check_exits_with_what_the_suites_say(monkeypatch, tmp_path):
    asked = []

    def run_check(name: str, junit: Path | None) -> int:
        asked.append((name, junit))
        return 3

    monkeypatch.setattr("axisrl.testing.check.run_check", run_check)
    report = tmp_path / "report.xml"
    assert call("check", "core", "--junit", str(report)).exit_code == 3
    assert asked == [("core", report)]


@pytest.mark.parametrize("path", ["./mine.py", "plugins/mine", "mine.py"])
def test_check_of_a_path_says_that_it_takes_names(path):
    with pytest.raises(UsageError, match="is a path: the suites try an installed plugin"):
        call("check", path)


def test_check_of_an_unknown_plugin_gives_the_pip_command():
    with pytest.raises(PluginError, match="pip install axisrl-plugin-search-r1"):
        call("check", "search-r1")


def test_the_list_loads_nothing_heavy(site):
    for name in ("alpha", "beta", "gamma", "delta", "epsilon", "zeta", "eta", "theta"):
        site.add(name, requires=["axisrl-core>=0.1"])
    ran = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, check=True)
    assert "theta" in ran.stdout
    assert ran.stdout.splitlines()[-1] == ""
