"""Ranks that a layout does not divide are refused before a run, with the arithmetic."""

import pytest

from axisrl.config.schema import ModelConfig, PlacementConfig, RunConfig, Use
from axisrl_megatron.plugin import axisrl_config_resolved

PARTS = {
    "model": ModelConfig(name="tiny"),
    **{name: Use(use=f"x/{name}") for name in ("dataset", "env", "engine", "advantage", "loss")},
}


def problems(ranks, *, use="megatron/trainer", mode="train", **options):
    config = RunConfig(
        mode=mode,
        trainer=Use(use=use, options=options),
        placement=PlacementConfig(kind="ray", trainer_ranks=ranks),
        **PARTS,
    )
    return list(axisrl_config_resolved(config))


@pytest.mark.parametrize(("ranks", "tensor"), [(1, 1), (4, 1), (4, 2), (4, 4)])
def test_ranks_that_the_layout_divides_pass(ranks, tensor):
    assert problems(ranks, tensor=tensor) == []


@pytest.mark.parametrize(("ranks", "tensor", "rest"), [(1, 2, 1), (6, 4, 2)])
def test_a_rest_is_told_with_its_place(ranks, tensor, rest):
    (problem,) = problems(ranks, tensor=tensor, use="megatron/trainer@1")
    assert problem.path == "trainer.tensor"
    assert f"{ranks} / {tensor} leaves {rest}" in problem.message
    assert f"multiple of {tensor}" in problem.fix


def test_another_trainer_is_none_of_its_business():
    assert problems(3, use="x/trainer", tensor=2) == []


def test_a_run_that_trains_nothing_has_no_layout():
    assert problems(1, mode="rollout", tensor=2) == []
