"""Named services of a run, as they are written in its configuration."""

from __future__ import annotations

import pytest

from axisrl.config.load import write_config
from axisrl.config.use import ServiceUse
from axisrl.config.validate import schema_of
from axisrl.errors import ConfigError, PluginError


def refusal(load, *overrides):
    with pytest.raises((ConfigError, PluginError)) as caught:
        load("toy/base", *overrides)
    return caught.value.message


def test_a_service_has_its_own_options_beside_those_of_the_run(load, tmp_path):
    words = "services.words={use: toy/index, size: 9, replicas: 2, gpus: 0.5}"
    loaded = load("toy/base", words, "placement=ray")
    use = loaded.config.services["words"]
    assert isinstance(use, ServiceUse)
    assert (use.use, use.replicas, use.gpus) == ("toy/index", 2, 0.5)
    assert use.options == {"size": 9, "shape": "flat"}
    assert loaded.tree["services"]["words"] == {
        "use": "toy/index",
        "replicas": 2,
        "gpus": 0.5,
        "size": 9,
        "shape": "flat",
    }
    assert load(write_config(loaded, tmp_path / "run")).config == loaded.config


def test_a_service_may_be_named_by_its_component_alone(load):
    loaded = load("toy/base", "services.words=toy/index", "services.words.size=4")
    use = loaded.config.services["words"]
    assert (use.replicas, use.gpus, use.options["size"]) == (1, 0.0, 4)
    assert ("services.words", "service") in [(one.path, one.kind) for one in loaded.components]


def test_a_service_is_taken_out_by_its_name(load):
    assert load("toy/base", "services.w=toy/index", "services.w=null").config.services == {}


def test_another_component_starts_the_options_afresh_and_those_of_the_run(load, tmp_path):
    recipe = tmp_path / "a.yaml"
    recipe.write_text("extends: toy/base\nservices: {w: {use: other/index, replicas: 3, x: 1}}\n")
    use = load(recipe, "services.w.use=toy/index").config.services["w"]
    assert (use.use, use.replicas) == ("toy/index", 1)


@pytest.mark.parametrize("name", ["model", "environ", "tokenizer", "verifiers"])
def test_a_name_that_the_core_uses_itself_is_refused(load, name):
    assert f"services.{name}: the core itself offers a service" in refusal(
        load, f"services.{name}=toy/index"
    )


def test_a_name_that_cannot_name_a_resource_group_is_refused(load):
    assert "a service's name is a letter" in refusal(load, "services={'2 words': toy/index}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("{use: toy/index, replicas: 0}", "services.words: replicas 0 is below 1"),
        ("{use: toy/index, replicas: true}", "services.words.replicas: expected a number"),
        ("{use: toy/index, gpus: -1}", "services.words: gpus -1.0 is below 0"),
        ("{use: toy/index, sise: 3}", "unknown key services.words.sise; did you mean"),
        ("{use: toy/index, gpus: 1}", "services.words.gpus 1 has no effect with placement.kind"),
        ("toy/indx", "services.words: "),
    ],
)
def test_what_is_wrong_with_a_service_is_told_under_its_key(load, words, told):
    assert told in refusal(load, f"services.words={words}")


def test_the_schema_of_a_run_tells_the_keys_of_a_service():
    from axisrl.config.schema import RunConfig

    definitions = schema_of(RunConfig)["$defs"]
    text, written_out = definitions["ServiceUse"]["anyOf"]
    assert text == {"type": "string"}
    assert written_out["required"] == ["use"]
    assert written_out["additionalProperties"] is True
    properties = written_out["properties"]
    assert list(properties) == ["use", "replicas", "gpus"]
    assert "Processes that answer" in properties["replicas"]["description"]
    assert list(definitions["Use"]["anyOf"][1]["properties"]) == ["use"]
