"""Tests of axisrl_megatron.mesh that need no second process; test_ranks.py has the others."""

import pytest

from axisrl.errors import EnvironmentProblem
from axisrl.types import Ranks
from axisrl_megatron import mesh
from axisrl_megatron.layout import Layout

RANKS = Ranks(rank=0, size=2, rendezvous="127.0.0.1:1", timeout_s=1.0)


@pytest.mark.parametrize("layout", [Layout(data=2), Layout(tensor=2)])
def test_a_process_with_a_rank_of_a_model_takes_no_second_model(monkeypatch, layout):
    monkeypatch.setattr(mesh, "_users", {Layout(data=2): 1})
    with pytest.raises(EnvironmentProblem, match="this process trains a model over") as refused:
        mesh.Mesh(layout, RANKS)
    assert "placement.kind ray" in refused.value.fix


@pytest.mark.needs("megatron")
def test_groups_that_megatron_does_not_make_leave_none(monkeypatch):
    from megatron.core import parallel_state
    from torch import distributed

    def refuse(**sizes):
        raise RuntimeError("no such layout")

    monkeypatch.setattr(parallel_state, "initialize_model_parallel", refuse)
    with pytest.raises(RuntimeError, match="no such layout"):
        mesh.Mesh(Layout(), None)
    assert not distributed.is_initialized()
