from __future__ import annotations

import json

import pytest

from axisrl.config.recipe import read_recipe, read_settings
from axisrl.errors import ConfigError, PluginError, UsageError
from axisrl.plugins.manager import PluginManager


def read(ref: object):
    return read_recipe(str(ref), PluginManager.discover())


def origins(recipe) -> list[str]:
    return [layer.origin for layer in recipe.layers]


def settings(ref: object) -> list[str]:
    """Origins of the layers of ``--config ref``."""
    return [layer.origin for layer in read_settings(str(ref), PluginManager.discover())]


def test_a_plugins_recipe_is_read_and_its_plugin_activated(toy):
    manager = PluginManager.discover()
    recipe = read_recipe("toy/base", manager)
    assert recipe.name == "toy/base"
    assert recipe.layers[0].tree["train"] == {"updates": 10, "batch_size": 8}
    assert [r.name for r in manager.records() if r.state == "active"] == ["core", "toy"]


def test_extends_puts_the_parent_below_and_its_smoke_settings_are_inherited(toy):
    recipe = read("toy/small")
    assert origins(recipe) == ["recipe toy/base", "recipe toy/small"]
    assert [layer.origin for layer in recipe.smoke] == ["smoke settings of toy/base"]


def test_smoke_settings_of_a_recipe_lie_over_those_of_the_one_it_extends(toy, site):
    source = """
        from axisrl.plugins import RecipeComponent, hookimpl

        @hookimpl
        def axisrl_recipes():
            return [RecipeComponent(name="more", target="{module}:more.yaml",
                                    smoke="{module}:smoke.yaml")]
        """
    files = {"more.yaml": "extends: toy/base\n", "smoke.yaml": "seed: 5\n"}
    site.add("extra", source, files=files)
    recipe = read("extra/more")
    assert [layer.origin for layer in recipe.smoke] == [
        "smoke settings of toy/base",
        "smoke settings of extra/more",
    ]


def test_a_file_may_extend_a_recipe_and_a_file_beside_it(toy, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/a.yaml").write_text("extends: ../b.yaml\nseed: 1\n")
    (tmp_path / "b.yaml").write_text("extends: toy/base\nseed: 2\n")
    recipe = read(tmp_path / "sub/a.yaml")
    assert [layer.tree.get("seed") for layer in recipe.layers] == [None, 2, 1]
    assert recipe.name == str(tmp_path / "sub/a.yaml")


def test_a_circle_of_extends_is_an_error_that_shows_it(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: ./b.yaml\n")
    (tmp_path / "b.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(ConfigError, match=r"comes back to itself: .*a\.yaml -> .*b\.yaml -> "):
        read(tmp_path / "a.yaml")


@pytest.mark.parametrize(("written", "shown"), [("{a: b}", r"\{'a': 'b'\}"), ("[1]", r"\[1\]")])
def test_extends_has_to_be_names(tmp_path, written, shown):
    (tmp_path / "a.yaml").write_text(f"extends: {written}\n")
    with pytest.raises(ConfigError, match=f"`extends` is {shown}, not a recipe"):
        read(tmp_path / "a.yaml")


def test_a_list_of_extends_begins_with_a_recipe_and_lays_the_others_over_it(toy, tmp_path):
    (tmp_path / "more.yaml").write_text("seed: 2\n")
    path = tmp_path / "a.yaml"
    path.write_text("extends: [toy/small, toy/wide, more.yaml, toy/rare]\nseed: 3\n")
    assert origins(read(path)) == [
        "recipe toy/base",
        "recipe toy/small",
        "preset toy/wide",
        "more.yaml",
        "preset toy/rare",
        f"recipe {path}",
    ]


def test_smoke_settings_are_the_recipes_whatever_presets_lie_over_it(toy, tmp_path):
    (tmp_path / "a.yaml").write_text("extends: [toy/small, toy/wide]\n")
    recipe = read(tmp_path / "a.yaml")
    assert [layer.origin for layer in recipe.smoke] == ["smoke settings of toy/base"]


def test_a_file_may_be_extended_twice_where_that_is_no_circle(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: [b.yaml, c.yaml, d.yaml]\n")
    (tmp_path / "b.yaml").write_text("seed: 1\n")
    for name in ("c", "d"):
        (tmp_path / f"{name}.yaml").write_text("extends: shared.yaml\n")
    (tmp_path / "shared.yaml").write_text("seed: 2\n")
    layers = origins(read(tmp_path / "a.yaml"))[:-1]
    assert layers == ["recipe b.yaml", "shared.yaml", "c.yaml", "shared.yaml", "d.yaml"]


def test_a_circle_through_the_second_of_a_list_is_an_error_too(tmp_path):
    (tmp_path / "a.yaml").write_text("extends: [b.yaml, c.yaml]\n")
    (tmp_path / "b.yaml").write_text("seed: 1\n")
    (tmp_path / "c.yaml").write_text("extends: a.yaml\n")
    with pytest.raises(ConfigError, match=r"itself: .*a\.yaml -> .*c\.yaml -> .*a\.yaml"):
        read(tmp_path / "a.yaml")


def test_a_preset_is_no_recipe(toy):
    with pytest.raises(ConfigError, match="toy/wide is a preset: a few settings") as caught:
        read("toy/wide")
    assert caught.value.fix == "give it to a recipe: axisrl run RECIPE --config toy/wide"


@pytest.mark.parametrize("written", ["toy/wide", "[toy/wide, toy/base]"])
def test_extends_does_not_begin_with_a_preset(toy, tmp_path, written):
    (tmp_path / "a.yaml").write_text(f"extends: {written}\n")
    with pytest.raises(ConfigError, match="toy/wide is a preset") as caught:
        read(tmp_path / "a.yaml")
    assert caught.value.fix == "begin with a recipe: extends: [plugin/recipe, toy/wide]"


def test_a_second_whole_recipe_in_extends_is_refused_with_the_reason(toy, tmp_path):
    (tmp_path / "a.yaml").write_text("extends: [toy/base, toy/small]\n")
    with pytest.raises(ConfigError, match=r"toy/small is a whole recipe.*would replace its model"):
        read(tmp_path / "a.yaml")


def test_a_preset_is_settings_and_its_plugin_is_activated(toy):
    manager = PluginManager.discover()
    (layer,) = read_settings("toy/wide", manager)
    assert layer.origin == "preset toy/wide"
    assert layer.tree["rollout"] == {"group_size": 8}
    assert [r.name for r in manager.records() if r.state == "active"] == ["core", "toy"]


def test_a_file_of_settings_may_extend_presets(toy, tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("extends: [toy/wide, toy/rare]\nseed: 2\n")
    assert settings(path) == ["preset toy/wide", "preset toy/rare", str(path)]


def test_a_whole_recipe_is_not_settings(toy):
    with pytest.raises(ConfigError, match=r"toy/base is a whole recipe.*would replace") as caught:
        settings("toy/base")
    assert caught.value.fix == "give it as RECIPE: axisrl run toy/base"


def test_a_run_folder_is_not_settings(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 4\n")
    with pytest.raises(ConfigError, match=r"config\.yaml is a whole recipe"):
        settings(tmp_path)


def test_an_unknown_preset_names_the_nearest_and_the_option(toy):
    with pytest.raises(ConfigError, match=r"^--config: toy has no recipe 'wied'; .*'wide'"):
        settings("toy/wied")


@pytest.mark.parametrize("name", ["none.yaml", "none.json", "./none"])
def test_a_missing_file_of_settings_is_a_usage_error(name):
    with pytest.raises(UsageError, match=f"there is no file {name.removeprefix('./')}"):
        settings(name)


def test_a_run_folder_is_a_recipe_under_the_name_it_was_started_with(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 4\n")
    (tmp_path / "manifest.json").write_text(json.dumps({"recipe": "toy/base"}))
    recipe = read(tmp_path)
    assert recipe.name == "toy/base"
    assert recipe.layers[0].tree == {"seed": 4}


def test_a_project_folder_uses_the_first_recipe_of_its_plugin(toy, tmp_path):
    project = tmp_path / "project"
    project.mkdir()
    (project / "pyproject.toml").write_text('[project.entry-points.axisrl]\ntoy = "axisrl_toy"\n')
    assert read(project).name == "toy/base"


def test_a_project_of_presets_alone_holds_no_recipe(site, tmp_path):
    source = RECIPE.replace(")]", ", preset=True)]").replace("{target}", "{module}:p.yaml")
    site.add("tuned", source, files={"p.yaml": "seed: 1\n"})
    (tmp_path / "pyproject.toml").write_text('[project.entry-points.axisrl]\ntuned = "x"\n')
    with pytest.raises(UsageError, match="its plugin tuned offers none"):
        read(tmp_path)


def test_a_project_that_is_not_installed_says_how_to(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.entry-points.axisrl]\nnew = "axisrl_new"\n')
    with pytest.raises(UsageError) as caught:
        read(tmp_path)
    assert caught.value.fix == f"pip install -e {tmp_path}"


def test_a_folder_without_a_recipe_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="holds no recipe"):
        read(tmp_path)


def test_a_damaged_pyproject_is_a_usage_error(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[[[")
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path)


def test_an_unknown_recipe_names_the_nearest(toy):
    with pytest.raises(ConfigError, match="did you mean 'small'"):
        read("toy/smal")


def test_an_unknown_plugin_is_a_plugin_error():
    with pytest.raises(PluginError, match="'nowhere' is not installed"):
        read("nowhere/recipe")


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match=r"there is no file .*none\.yaml"):
        read(tmp_path / "none.yaml")


def test_a_folder_in_the_way_does_not_hide_a_plugins_recipe(toy, tmp_path, monkeypatch):
    (tmp_path / "toy/base").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert read("toy/base").name == "toy/base"


RECIPE = """
from axisrl.plugins import RecipeComponent, hookimpl

@hookimpl
def axisrl_recipes():
    return [RecipeComponent(name="r", target="{target}")]
"""


@pytest.mark.parametrize("target", ["{module}:configs/none.yaml", "axisrl_absent:r.yaml"])
def test_a_recipe_whose_file_is_not_there_is_the_plugins_fault(site, target):
    site.add("lost", RECIPE.replace("{target}", target))
    with pytest.raises(PluginError, match="recipe lost/r points to"):
        read("lost/r")
