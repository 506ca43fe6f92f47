"""Tests of axisrl_megatron.weights, on a net of one Megatron-named parameter or two."""

from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from axisrl.errors import EnvironmentProblem
from axisrl_megatron.layout import Layout, ModelShape
from axisrl_megatron.weights import FolderTensors, NetWeights, write_parts

SHAPE = ModelShape(layers=1, heads=1, key_value_heads=1, intermediate=3, vocabulary=9)
FC1 = "decoder.layers.0.mlp.linear_fc1.weight"
NORM = "decoder.final_layernorm.weight"
GATE, UP = (f"model.layers.0.mlp.{name}_proj.weight" for name in ("gate", "up"))
TENSORS = {GATE: torch.zeros(3, 2), UP: torch.ones(3, 2), "model.norm.weight": torch.ones(2)}


class Net:
    def __init__(self):
        self.parameters = {
            FC1: torch.nn.Parameter(torch.full((6, 2), 7.0)),
            NORM: torch.nn.Parameter(torch.zeros(2)),
        }

    def named_parameters(self):
        return self.parameters.items()


@pytest.fixture
def net():
    return Net()


@pytest.fixture
def weights(net):
    return weights_of(net, Layout())


def weights_of(net, layout, rank=0):
    mesh = SimpleNamespace(layout=layout, place=layout.place(rank))
    return NetWeights(net.parameters, 4, SHAPE, mesh)


def test_what_was_loaded_comes_back_under_its_names(weights):
    assert weights.load(TENSORS.__getitem__) == []
    held = dict(weights.named())
    assert held.keys() == TENSORS.keys()
    assert all(torch.equal(held[name], TENSORS[name]) for name in TENSORS)


def test_what_is_not_there_is_named_and_its_parameter_left_alone(net, weights):
    given = {name: value for name, value in TENSORS.items() if name != UP}
    assert weights.load(given.__getitem__) == [GATE, UP]
    assert net.parameters[FC1].unique().tolist() == [7.0]
    assert net.parameters[NORM].tolist() == [1, 1]


def test_a_tensor_of_another_shape_is_refused(weights):
    given = TENSORS | {"model.norm.weight": torch.ones(3)}
    with pytest.raises(RuntimeError, match=r"model\.norm\.weight make \(3,\), not \(2,\)"):
        weights.load(given.__getitem__)


def test_other_tensors_of_parameters_get_the_same_names(weights):
    moments = {FC1: torch.arange(12.0).view(6, 2)}
    parts = {part.name: part.tensor for part in weights.parts(moments)}
    assert parts.keys() == {GATE, UP}
    assert torch.equal(weights.joined(FC1, parts.__getitem__), moments[FC1])


PAIR = Layout(tensor=2)
EMBEDDING = "embedding.word_embeddings.weight"


@pytest.fixture
def parts_of_two(tmp_path):
    """A folder of what two ranks hold of three tensors, the last of 9 tokens padded to 10; and
    the tensors."""
    whole = {GATE: torch.rand(4, 2), UP: torch.rand(4, 2), "model.norm.weight": torch.rand(2)}
    embedding = torch.rand(9, 2)
    padded = torch.cat([embedding, torch.zeros(1, 2)])
    for rank in range(2):
        net = Net()
        net.parameters[EMBEDDING] = torch.nn.Parameter(padded.chunk(2)[rank])
        tensors = {
            FC1: torch.cat([whole[name].chunk(2)[rank] for name in (GATE, UP)]),
            NORM: whole["model.norm.weight"],
            EMBEDDING: padded.chunk(2)[rank],
        }
        parts = weights_of(net, PAIR, rank).parts(tensors)
        write_parts(tmp_path / f"{rank}.safetensors", parts, {f"more/{rank}": torch.ones(1)})
    return tmp_path, whole | {"model.embed_tokens.weight": embedding}


def test_parts_that_ranks_wrote_are_read_as_one_tensor(parts_of_two):
    path, whole = parts_of_two
    with FolderTensors(path) as folder:
        assert set(folder.names) == {*whole, "more/0", "more/1"}
        assert all(torch.equal(folder(name), whole[name]) for name in whole)


def test_a_part_that_is_missing_before_another_is_told(parts_of_two):
    path, _ = parts_of_two
    (path / "0.safetensors").unlink()
    with FolderTensors(path) as folder, pytest.raises(ValueError, match="lacks a part: 0 to 2"):
        folder(GATE)


def test_parameters_are_found_by_all_their_tensors(weights):
    assert weights.made_of([GATE, "model.norm.weight"]) == [NORM]
    assert weights.made_of([GATE, UP]) == [FC1]


def test_a_folder_may_hold_several_files(tmp_path):
    for number, (name, value) in enumerate(TENSORS.items()):
        save_file({name: value}, tmp_path / f"{number}.safetensors")
    with FolderTensors(tmp_path) as folder:
        assert torch.equal(folder(UP), TENSORS[UP])
        with pytest.raises(KeyError):
            folder("other")


def test_a_folder_without_files_is_refused(tmp_path):
    with pytest.raises(EnvironmentProblem, match="has no safetensors files"):
        FolderTensors(tmp_path)
