from __future__ import annotations

from axisrl.plugins.records import PluginOptions, PluginRecord


def test_options_come_from_the_environment_variables():
    options = PluginOptions.from_mapping(
        {
            "AXISRL_PLUGINS": "audit, trace",
            "AXISRL_DISABLE_PLUGINS": "slow",
            "AXISRL_STRICT_PLUGINS": "1",
            "AXISRL_REQUIRE_PLUGINS": "audit>=1.2,<2 trace",
        }
    )
    assert options == PluginOptions(
        activate=("audit", "trace"),
        disable=("slow",),
        strict=True,
        require=("audit>=1.2,<2", "trace"),
    )


def test_an_empty_environment_asks_for_nothing():
    assert PluginOptions.from_mapping({"AXISRL_STRICT_PLUGINS": "0"}) == PluginOptions()


def test_the_origin_of_a_plugin_names_distribution_and_version():
    record = PluginRecord(name="a", value="m", distribution="axisrl-plugin-a", version="1.0")
    assert record.origin == "a (axisrl-plugin-a 1.0)"
    assert PluginRecord(name="a", value="pack.a", source="module").origin == "a (pack.a)"


def test_facts_are_what_a_listing_shows():
    record = PluginRecord(name="a", value="m", distribution="d", version="1", note="why", fix="do")
    assert record.facts() == {
        "name": "a",
        "distribution": "d",
        "version": "1",
        "state": "found",
        "note": "why",
        "fix": "do",
    }
