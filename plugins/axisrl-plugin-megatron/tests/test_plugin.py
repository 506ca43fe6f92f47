"""Ranks that a layout does not divide, and models that it does not, are refused before a run, with
the arithmetic."""

import json

import pytest

from axisrl.config.learning import ValueConfig
from axisrl.config.schema import ModelConfig, PlacementConfig, RunConfig, Use
from axisrl_megatron.plugin import axisrl_config_resolved, axisrl_models_found

PARTS = {
    "model": ModelConfig(name="tiny"),
    **{name: Use(use=f"x/{name}") for name in ("dataset", "env", "engine", "advantage", "loss")},
}


SHAPE = {
    "model_type": "qwen2",
    "hidden_size": 1536,
    "intermediate_size": 8960,
    "num_hidden_layers": 28,
    "num_attention_heads": 12,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
}


def config_of(ranks, *, use="megatron/trainer", mode="train", value=None, **options):
    return RunConfig(
        mode=mode,
        trainer=Use(use=use, options=options),
        placement=PlacementConfig(kind="ray", trainer_ranks=ranks),
        value=value,
        **PARTS,
    )


def problems(ranks, **more):
    return list(axisrl_config_resolved(config_of(ranks, **more)))


@pytest.mark.parametrize(("ranks", "tensor"), [(1, 1), (4, 1), (4, 2), (4, 4)])
def test_ranks_that_the_layout_divides_pass(ranks, tensor):
    assert problems(ranks, tensor=tensor) == []


@pytest.mark.parametrize(("ranks", "tensor"), [(1, 2), (6, 4)])
def test_a_rest_is_told_with_its_place(ranks, tensor):
    (problem,) = problems(ranks, tensor=tensor, use="megatron/trainer@1")
    assert problem.path == "trainer"
    assert f"{ranks} trainer ranks cannot be divided into tensor {tensor}" in problem.message
    assert f"multiple of {tensor}" in problem.fix


def test_sizes_are_multiplied():
    assert problems(8, tensor=2, context=2, pipeline=2) == []
    (problem,) = problems(6, tensor=2, context=2)
    assert "tensor 2 x pipeline 1 x context 2 = 4" in problem.message
    (problem,) = problems(6, tensor=2, pipeline=2)
    assert "tensor 2 x pipeline 2 x context 1 = 4" in problem.message


@pytest.mark.parametrize(("expert", "parts", "rest"), [(2, 1, 0), (4, 1, 2), (2, 2, 2), (3, 2, 0)])
def test_ranks_that_the_experts_do_not_divide_are_told(expert, parts, rest):
    found = problems(6, expert=expert, expert_tensor=parts)
    told = f"cannot be divided into expert {expert} x expert_tensor {parts} = {expert * parts}"
    assert [one.path for one in found] == ["trainer"] * bool(rest)
    assert all(told in one.message for one in found)


def test_another_trainer_is_none_of_its_business():
    assert problems(3, use="x/trainer", tensor=2) == []


def test_a_run_that_trains_nothing_has_no_layout():
    assert problems(1, mode="rollout", tensor=2) == []


@pytest.fixture
def misfits(tmp_path):
    """What is wrong with a Qwen2 model, changed so, under a config."""

    def find(config, where="model", **changes):
        (tmp_path / "config.json").write_text(json.dumps(SHAPE | changes))
        return list(axisrl_models_found(config, {where: tmp_path}))

    return find


def test_a_model_that_the_layout_divides_passes(misfits):
    assert misfits(config_of(4, tensor=2)) == []


def test_a_model_that_the_layout_does_not_divide_is_told_with_the_arithmetic(misfits):
    (problem,) = misfits(config_of(4, tensor=4))
    assert problem.path == "trainer"
    assert "2 key-value heads / tensor 4 leaves 2" in problem.message


def test_layers_that_stages_do_not_divide_are_told(misfits):
    (problem,) = misfits(config_of(4, pipeline=4, virtual=2))
    assert "28 layers / pipeline x virtual 8 leaves 4" in problem.message


def test_the_value_model_is_looked_at_too(misfits):
    value = ValueConfig(loss=Use(use="x/v"), trainer=Use(use="megatron/trainer"))
    config = config_of(2, use="x/trainer", value=value)
    assert misfits(config, "value.model") == []
    (problem,) = misfits(config, "value.model", model_type="gpt2")
    assert problem.path == "value.trainer"
    assert "model_type gpt2, none of llama" in problem.message


def test_a_model_that_nobody_trains_may_be_any(misfits):
    for config in (config_of(1, mode="rollout"), config_of(1, use="x/trainer")):
        assert misfits(config, model_type="gpt2") == []
