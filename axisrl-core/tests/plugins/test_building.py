from __future__ import annotations

import sys
import traceback

import pytest

from axisrl.errors import ConfigError, PluginError
from axisrl.plugins import EnvComponent
from axisrl.plugins.building import (
    check_extras,
    construct,
    extras_command,
    import_attribute,
    import_plugin,
    last_line,
    missing_modules,
)
from axisrl.plugins.discovery import file_record
from axisrl.plugins.records import PluginRecord

RECORD = PluginRecord(name="e2b", value="m", distribution="axisrl-plugin-e2b", version="1.0")


def test_an_attribute_is_imported_by_its_dotted_path():
    assert import_attribute("x/y", "collections:OrderedDict.fromkeys")([1]) == {1: None}


def test_a_missing_attribute_is_an_error_with_the_nearest_name():
    with pytest.raises(PluginError, match="x/y: json:lods does not exist") as error:
        import_attribute("x/y", "json:lods")
    assert error.value.fix == "did you mean 'loads'?"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import not_a_module", "ModuleNotFoundError: No module named 'not_a_module'"),
        ("raise SystemExit(3)", "SystemExit: 3"),
        ("class Panic(BaseException): pass\nraise Panic('rust')", "Panic: rust"),
        ("def broken(:", "SyntaxError"),
    ],
)
def test_a_target_whose_import_fails_names_component_target_and_reason(site, body, said):
    module = site.add("alpha", files={"env.py": body})
    with pytest.raises(PluginError, match="x/y cannot import") as error:
        import_attribute("x/y", f"{module}.env:World")
    assert said in error.value.message
    assert error.value.__cause__ is not None


def test_an_interrupt_during_an_import_is_not_swallowed(site):
    module = site.add("alpha", files={"env.py": "raise KeyboardInterrupt"})
    with pytest.raises(KeyboardInterrupt):
        import_attribute("x/y", f"{module}.env:World")


def test_a_component_without_modules_needs_none():
    assert missing_modules(EnvComponent(name="x", target="a:b", extras=("e2b",))) == []


@pytest.mark.parametrize("module", ["not_a_module", "json.nothing", "not_a.module", "json.x.y"])
def test_a_missing_extra_is_an_error_with_the_pip_command(module):
    component = EnvComponent(name="x", target="a:b", extras=("sandbox",), modules=("json", module))
    assert missing_modules(component) == [module]
    with pytest.raises(PluginError, match=f"e2b/x needs {module}, which is not") as error:
        check_extras("e2b/x", component, RECORD)
    assert error.value.fix == "pip install 'axisrl-plugin-e2b[sandbox]'"
    assert error.value.exit_code == 4


def test_a_missing_module_of_a_local_plugin_is_installed_by_its_own_name():
    assert extras_command(("sandbox",), ["box.core"], "") == "pip install box"
    assert extras_command((), ["box"], "axisrl-plugin-e2b") == "pip install box"


def test_probing_an_extra_does_not_import_it(site):
    site.add("alpha", files={"heavy.py": "raise RuntimeError"})
    component = EnvComponent(name="x", target="a:b", modules=("axisrl_alpha.heavy",))
    assert missing_modules(component) == []
    assert "axisrl_alpha.heavy" not in sys.modules


def test_a_constructor_gets_config_and_context():
    assert construct("x/y", lambda config, context: (config, context), 1, 2) == (1, 2)


def test_what_a_constructor_raises_on_purpose_passes_and_the_rest_is_attributed():
    def build(error: Exception, _context: object) -> None:
        raise error

    with pytest.raises(ConfigError, match=r"^no$"):
        construct("x/y", build, ConfigError("no"), None)
    with pytest.raises(PluginError, match="x/y cannot be built: KeyError: 'a'") as error:
        construct("x/y", build, KeyError("a"), None)
    assert isinstance(error.value.__cause__, KeyError)


def test_the_last_line_of_an_error_is_one_line():
    assert last_line(ValueError("first\nlast\n")) == "ValueError: last"
    assert last_line(ValueError()) == "ValueError"


def test_a_file_runs_from_the_text_that_was_read(site, tmp_path):
    path = tmp_path / "world.py"
    path.write_text("raise RuntimeError('changed since')")
    record = file_record("world", b"x = __name__\ny = __file__\n", path)
    module = import_plugin(record)
    assert (module.x, module.y) == (record.value, str(path))
    assert import_plugin(record) is module
    assert not list(tmp_path.glob("__pycache__"))


def test_a_file_that_fails_leaves_no_module_and_has_its_line_in_the_traceback(site, tmp_path):
    path = tmp_path / "world.py"
    path.write_text("x = 1\nx / 0\n")
    record = file_record("world", path.read_bytes(), path)
    with pytest.raises(ZeroDivisionError) as error:
        import_plugin(record)
    assert record.value not in sys.modules
    assert "x / 0" in "".join(traceback.format_exception(error.value))
