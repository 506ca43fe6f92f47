"""Tests of axisrl_megatron.stages that need no second process; test_pipeline.py has the others."""

from types import SimpleNamespace

import pytest
import torch

from axisrl_megatron.layout import Layout
from axisrl_megatron.stages import of_all_stages, pipeline_options


def test_messages_have_the_type_that_the_layers_give():
    given = {"fp32_residual_connection": True}
    layout = Layout(pipeline=2)
    assert pipeline_options(layout, torch.bfloat16, {})["pipeline_dtype"] == torch.bfloat16
    assert pipeline_options(layout, torch.bfloat16, given)["pipeline_dtype"] == torch.float32


@pytest.mark.parametrize(("virtual", "batched"), [(1, True), (2, False)])
def test_two_stages_that_send_both_ways_do_not_do_so_in_one_batch(virtual, batched):
    options = pipeline_options(Layout(pipeline=2, virtual=virtual), torch.float32, {})
    assert (options["batch_p2p_comm"], options["overlap_p2p_comm"]) == (batched, not batched)


@pytest.mark.parametrize(("virtual", "freed"), [(1, True), (2, False)])
def test_outputs_are_freed_where_they_were_sent_by_then(virtual, freed):
    options = pipeline_options(Layout(pipeline=2, virtual=virtual), torch.float32, {})
    assert options["deallocate_pipeline_outputs"] is freed


@pytest.mark.parametrize(
    ("layout", "rank", "everywhere", "kept"),
    [
        (Layout(data=2), 1, False, True),
        (Layout(tensor=2), 0, False, True),
        (Layout(tensor=2), 1, False, False),
        (Layout(tensor=2), 1, True, True),
    ],
)
def test_tensors_stay_where_they_are_wanted(layout, rank, everywhere, kept):
    own = [("a", torch.ones(1))]
    mesh = SimpleNamespace(layout=layout, rank=rank)
    found = list(of_all_stages(mesh, iter(own), everywhere=everywhere))
    assert found == (own if kept else [])
