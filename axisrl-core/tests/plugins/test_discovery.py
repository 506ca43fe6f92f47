from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from axisrl.errors import PluginError, UsageError
from axisrl.plugins.discovery import MAX_LOCAL_BYTES, mark, resolve_local, scan
from axisrl.plugins.records import PluginOptions, PluginRecord

CORE_VERSION = "0.1.0"


def found(name: str) -> list[PluginRecord]:
    return [record for record in scan(CORE_VERSION) if record.name == name]


def test_a_plugin_is_found_from_metadata_and_not_imported(site):
    module = site.add("alpha", "raise RuntimeError('imported')", version="1.2")
    (record,) = found("alpha")
    assert (record.distribution, record.version) == ("axisrl-plugin-alpha", "1.2")
    assert (record.value, record.state) == (f"{module}.plugin", "found")
    assert module not in sys.modules


def test_core_is_found_first():
    assert scan(CORE_VERSION)[0].name == "core"


def test_of_two_copies_of_a_distribution_the_first_on_the_path_counts(site, tmp_path, monkeypatch):
    site.add("alpha", version="1.0")
    second = tmp_path / "second"
    second.mkdir()
    monkeypatch.syspath_prepend(str(second))
    type(site)(second).add("alpha", version="2.0")
    (record,) = found("alpha")
    assert record.version == "2.0"


def test_a_distribution_without_plugins_is_no_plugin(site):
    site.add_raw("tool", "1.0", "[console_scripts]\naxisrl-tool = tool:main\n")
    assert not [record for record in scan(CORE_VERSION) if record.distribution == "tool"]


def test_entry_points_that_cannot_be_parsed_break_their_own_plugin_only(site):
    site.add("alpha")
    site.add_raw("damaged", "1.0", "[axisrl]\nno equals sign\n")
    (damaged,) = found("damaged")
    assert damaged.state == "broken"
    assert "entry_points.txt cannot be read" in damaged.note
    assert found("alpha")[0].state == "found"


def test_entry_points_that_are_not_text_do_not_break_the_scan(site):
    site.add("alpha")
    info = site.add_raw("binary", "1.0", "")
    (info / "entry_points.txt").write_bytes(b"[axisrl]\nx = \xff\xfe\n")
    assert found("alpha")


def test_metadata_that_is_not_text_does_not_break_the_scan(site):
    info = site.add_raw("binary", "1.0", "[axisrl]\nbin = axisrl_bin.plugin\n")
    (info / "METADATA").write_bytes(b"Name: \xff\xfe\n")
    (record,) = found("bin")
    assert record.version == ""


@pytest.mark.parametrize("name", ["Alpha", "al_pha", "1alpha"])
def test_an_entry_point_with_a_name_that_is_no_plugin_name_is_broken(site, name):
    site.add_raw("odd", "1.0", f"[axisrl]\n{name} = axisrl_odd.plugin\n")
    (record,) = found(name)
    assert record.state == "broken"
    assert "lower-case" in record.note


def test_an_entry_point_that_is_not_a_module_is_broken(site):
    site.add_raw("odd", "1.0", "[axisrl]\nodd = axisrl_odd.plugin:make\n")
    (record,) = found("odd")
    assert record.state == "broken"
    assert "is not a module" in record.note


@pytest.mark.parametrize(
    "requirement",
    ["axisrl-core>=9,<10", "AXISRL_core (>=9,<10)", "axisrl-core>=9,<10; python_version > '3'"],
)
def test_a_plugin_for_another_core_is_incompatible_and_says_what_to_install(site, requirement):
    site.add("alpha", requires=["numpy", requirement])
    (record,) = found("alpha")
    assert record.state == "incompatible"
    assert "installed is 0.1.0" in record.note
    assert record.fix in ("pip install 'axisrl-core<10,>=9'", "pip install 'axisrl-core>=9,<10'")


@pytest.mark.parametrize(
    "requirement",
    ["axisrl-core>=0.1,<0.2", "axisrl-core[ray]", "axisrl-core>=9; extra == 'next'"],
)
def test_a_requirement_that_the_core_meets_or_that_is_an_extra_is_compatible(site, requirement):
    site.add("alpha", requires=[requirement])
    assert found("alpha")[0].state == "found"


def test_a_development_version_of_the_core_meets_a_range_around_it(site):
    site.add("alpha", requires=["axisrl-core>=0.1,<0.2"])
    (record,) = [r for r in scan("0.1.5.dev3") if r.name == "alpha"]
    assert record.state == "found"


def test_a_requirement_that_cannot_be_read_breaks_the_plugin(site):
    site.add("alpha", requires=["axisrl-core=>0.1"])
    assert found("alpha")[0].state == "broken"


def records() -> list[PluginRecord]:
    return [
        PluginRecord(name="core", value="c.plugin", distribution="axisrl-core", version="0.1.0"),
        PluginRecord(name="alpha", value="a.plugin", distribution="axisrl-plugin-alpha"),
        PluginRecord(name="beta", value="b.plugin", distribution="axisrl-plugin-beta"),
    ]


def test_two_distributions_with_one_name_are_both_in_conflict():
    all_records = [*records(), PluginRecord(name="alpha", value="x", distribution="other")]
    mark(all_records, PluginOptions())
    states = {r.distribution: r.state for r in all_records}
    assert states["axisrl-plugin-alpha"] == states["other"] == "conflict"
    assert states["axisrl-plugin-beta"] == "found"
    assert "axisrl-plugin-alpha" in all_records[-1].note and "other" in all_records[-1].note
    assert "--no-plugin other" in all_records[-1].fix


def test_disabling_one_distribution_ends_a_conflict():
    all_records = [*records(), PluginRecord(name="alpha", value="x", distribution="other")]
    mark(all_records, PluginOptions(no_plugin=("other",)))
    assert [r.state for r in all_records] == ["found", "found", "found", "disabled"]


def test_a_plugin_that_calls_itself_core_does_not_take_core_down():
    all_records = [*records(), PluginRecord(name="core", value="x", distribution="impostor")]
    mark(all_records, PluginOptions())
    assert (all_records[0].state, all_records[-1].state) == ("found", "conflict")


def test_a_plugin_is_disabled_by_name_or_by_distribution():
    all_records = records()
    mark(all_records, PluginOptions(disable=("alpha", "axisrl-plugin-beta", "not-here")))
    assert [r.state for r in all_records] == ["found", "disabled", "disabled"]


def test_no_plugin_with_an_unknown_name_is_a_usage_error_with_the_nearest_name():
    with pytest.raises(UsageError, match="did you mean 'alpha'") as error:
        mark(records(), PluginOptions(no_plugin=("alhpa",)))
    assert error.value.exit_code == 2


@pytest.mark.parametrize("name", ["core", "axisrl-core"])
def test_core_cannot_be_disabled(name):
    with pytest.raises(UsageError, match="core cannot be disabled"):
        mark(records(), PluginOptions(disable=(name,)))


def test_a_local_value_may_be_an_installed_name_or_the_module_of_one():
    assert resolve_local("alpha", records()) == "alpha"
    assert resolve_local("a.plugin", records()) == "alpha"


def test_a_file_becomes_a_plugin_named_after_its_stem(tmp_path):
    path = tmp_path / "my_world.py"
    path.write_text("x = 1\n")
    record = resolve_local(str(path), records())
    assert isinstance(record, PluginRecord)
    assert (record.name, record.source, record.path) == ("my-world", "file", path)
    assert record.value.startswith("axisrl_local_")


def test_two_versions_of_a_file_get_two_module_names(tmp_path):
    path = tmp_path / "world.py"
    names = set()
    for text in ("x = 1\n", "x = 2\n"):
        path.write_text(text)
        names.add(resolve_local(path, []).value)
    assert len(names) == 2


def test_a_module_becomes_a_plugin_named_after_its_last_part():
    record = resolve_local("json.decoder", records())
    assert isinstance(record, PluginRecord)
    assert (record.name, record.source, record.value) == ("decoder", "module", "json.decoder")


@pytest.mark.parametrize("item", ["./nowhere.py", "some/folder", Path("alpha")])
def test_a_path_without_a_python_file_is_a_usage_error(item):
    with pytest.raises(UsageError, match="no such Python file"):
        resolve_local(item, records())


def test_a_file_may_not_take_an_installed_name(tmp_path):
    path = tmp_path / "alpha.py"
    path.write_text("")
    with pytest.raises(UsageError, match=r"the name alpha belongs to alpha \(axisrl-plugin-alpha"):
        resolve_local(path, records())


def test_a_file_over_the_limit_is_a_usage_error_with_both_numbers(tmp_path):
    path = tmp_path / "big.py"
    path.write_bytes(b"#" * (MAX_LOCAL_BYTES + 1))
    with pytest.raises(UsageError, match=r"262145 bytes, .* 262144"):
        resolve_local(path, [])


def test_a_file_whose_stem_is_no_name_is_a_usage_error(tmp_path):
    path = tmp_path / "2nd.py"
    path.write_text("")
    with pytest.raises(UsageError, match="'2nd' cannot be a plugin name"):
        resolve_local(path, [])


def test_an_unknown_name_fails_with_the_pip_command():
    with pytest.raises(PluginError, match="pip install axisrl-plugin-search-r1") as error:
        resolve_local("search-r1", records())
    assert error.value.exit_code == 4


def test_a_misspelt_name_fails_with_the_nearest_one():
    with pytest.raises(PluginError, match="did you mean 'alpha'"):
        resolve_local("alhpa", records())


def test_discovery_reads_what_the_standard_library_reads(site):
    site.add("alpha")
    expected = {(p.name, p.value) for p in metadata.entry_points(group="axisrl")}
    assert {(r.name, r.value) for r in scan(CORE_VERSION)} == expected
