"""Each check of PluginSuite catches a plugin that breaks its promise."""

import pytest

from axisrl.errors import PluginError
from axisrl.testing import PluginSuite
from axisrl.testing import plugin as checks
from axisrl.testing.components import build_component, load_cases, manager, record_of
from axisrl.testing.plugin import PluginCase

PLUGIN = """
from axisrl.plugins import DatasetComponent, RecipeComponent, hookimpl

@hookimpl
def axisrl_datasets():
    return [
        DatasetComponent(name="count", target="{module}.parts:Count", summary="Counts",
                         config="{module}.parts:CountConfig"),
    ]

@hookimpl
def axisrl_recipes():
    return [RecipeComponent(name="run", target="{module}:configs/run.yaml", summary="A run")]
"""
FILES = {
    "py.typed": "",
    "configs/run.yaml": "dataset: good/count",
    "parts.py": '''
        from dataclasses import dataclass
        from axisrl.config.base import Config
        from axisrl.types import Task

        @dataclass(frozen=True, kw_only=True, slots=True)
        class CountConfig(Config):
            """Counts."""

            size: int
            """How far."""

        class Count:
            def __init__(self, config, context):
                self.size = config.size

            def __len__(self):
                return self.size

            def __getitem__(self, index):
                if index >= self.size:
                    raise IndexError(index)
                return Task(id=str(index), data={})
        ''',
    "conformance.py": """
        from axisrl.testing import DatasetCase
        CASES = [DatasetCase(use="good/count", options={"size": 3})]
        """,
}


@pytest.fixture(autouse=True)
def fresh_manager():
    manager.cache_clear()
    yield
    manager.cache_clear()


@pytest.fixture
def install(site):
    """Installs the good plugin with some of its text or files replaced."""

    def add(*swap, without=(), distribution="", **files):
        source = PLUGIN.replace(*swap) if swap else PLUGIN
        kept = {name: text for name, text in FILES.items() if name not in without}
        site.add("good", source, files=kept | files, distribution=distribution)

    return add


CASE = PluginCase(use="good")


def test_a_good_plugin_passes_every_check(trial, install):
    install()
    trial.passes(PluginSuite, CASE, builder=build_component)


def test_a_distribution_of_another_name_is_caught(trial, install):
    install(distribution="axisrl-plugin-better")
    trial.fails(checks.names_agree, CASE, told="distribution 'axisrl-plugin-better'")


def test_a_plugin_module_that_imports_torch_is_caught(trial, install):
    install("from axisrl", "import numpy\nfrom axisrl")
    trial.fails(checks.importing_it_is_light, CASE, told="loads numpy")


def test_a_component_without_a_summary_is_caught(trial, install):
    install('summary="Counts"', 'summary=""')
    trial.fails(checks.every_component_has_a_summary, CASE, told="dataset count: summary ''")


def test_a_target_that_is_not_there_is_caught(trial, install):
    install('parts:Count"', 'parts:Cuont"')
    trial.fails(checks.every_target_can_be_imported, CASE, told="has no 'Cuont'")


def test_a_target_whose_extra_is_missing_is_not_imported(trial, install):
    install('summary="Counts"', 'summary="Counts", extras=("far",), modules=("no_such_module",)')
    trial(checks.every_target_can_be_imported, CASE)


def test_a_config_that_is_another_each_time_is_caught(trial, install):
    drifting = FILES["parts.py"].replace(
        '"""How far."""',
        '"""How far."""\n\n            def __post_init__(self):'
        '\n                object.__setattr__(self, "size", id(self))',
    )
    install(**{"parts.py": drifting})
    trial.fails(checks.every_config_holds, CASE, told="comes back from YAML as")


def test_a_config_that_refuses_the_options_of_its_case_is_caught(trial, install):
    cases = FILES["conformance.py"].replace("3", '"three"')
    install(**{"conformance.py": cases})
    trial.fails(checks.every_config_holds, CASE, told="its config refuses")


def test_a_package_without_py_typed_is_caught(trial, install):
    install(without=["py.typed"])
    trial.fails(checks.typing_and_data_files_are_installed, CASE, told="no py.typed")


def test_a_recipe_that_is_not_installed_is_caught(trial, install):
    install(without=["configs/run.yaml"])
    trial.fails(checks.typing_and_data_files_are_installed, CASE, told="run.yaml is not installed")


def test_a_component_without_a_case_is_caught(trial, install):
    install(**{"conformance.py": "CASES = []"})
    trial.fails(
        checks.every_component_has_a_case, CASE, told="no case in axisrl_good.conformance for data"
    )


def test_a_plugin_without_a_conformance_module_has_no_cases(install):
    install(without=["conformance.py"])
    assert load_cases(record_of("good")) == ()


def test_a_conformance_module_without_cases_says_what_to_write(install):
    install(**{"conformance.py": "CASES = 3"})
    with pytest.raises(PluginError, match="has no CASES") as raised:
        load_cases(record_of("good"))
    assert "CASES = [" in raised.value.fix
