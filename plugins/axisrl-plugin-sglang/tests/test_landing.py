"""Tests of axisrl_sglang.landing."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from axisrl_sglang.landing import served, untied


class Model(nn.Module):
    """Fuses ``q`` and ``k``, keeps ``norm`` in float32, pads ``embed`` by two rows."""

    def __init__(self, **flaws):
        super().__init__()
        self.qk = nn.Parameter(torch.zeros(6, 3), False)
        self.norm = nn.Parameter(torch.zeros(4), False)
        self.embed = nn.Parameter(torch.zeros(7, 2), False)
        self.flaws = flaws
        self.loads = 0

    def load_weights(self, weights):
        self.loads += 1
        for name, tensor in weights:
            if name == self.flaws.get("skips"):
                continue
            if name == "q":
                self.qk.data.narrow(0, 0, 4).copy_(tensor)
            elif name == "k":
                self.qk.data.narrow(0, 3 if "overlaps" in self.flaws else 4, 2).copy_(tensor)
            elif name == "norm":
                self.norm.data.copy_(tensor * 2 if "doubles" in self.flaws else tensor)
            elif name == "embed":
                self.embed.data[:5].copy_(tensor[:5])
                self.embed.data[5:].fill_(0)


def weights(seed=0, **changes):
    generator = torch.Generator().manual_seed(seed)
    drawn = {
        "q": torch.randn(4, 3, generator=generator),
        "k": torch.randn(2, 3, generator=generator),
        "norm": torch.randn(4, generator=generator).bfloat16(),
        "embed": torch.randn(5, 2, generator=generator),
    }
    return drawn | changes


def test_weights_that_land_whole_are_served():
    model, given = Model(), weights()
    assert served(model, given) == ""
    assert torch.equal(model.qk, torch.cat([given["q"], given["k"]]))


def test_the_second_load_needs_no_watching_and_is_checked_all_the_same():
    model = Model()
    assert served(model, weights()) == served(model, weights(1)) == ""
    model.flaws["skips"] = "k"
    assert served(model, weights(2)) == "do not hold what was received: qk"
    assert model.loads == 3


@pytest.mark.parametrize(
    ("flaws", "problem"),
    [
        ({"skips": "k"}, "did not reach the model: k; were not (wholly) given: qk"),
        ({"skips": "norm"}, "did not reach the model: norm; were not (wholly) given: norm"),
    ],
)
def test_a_tensor_that_is_skipped_is_named(flaws, problem):
    assert served(Model(**flaws), weights()) == problem


def test_a_slice_that_is_written_over_is_found():
    assert "do not hold what was received: qk" in served(Model(overlaps=True), weights())


def test_a_tensor_that_is_missing_is_found():
    given = weights()
    del given["norm"]
    assert served(Model(), given) == "were not (wholly) given: norm"


def test_a_tensor_that_nobody_takes_is_found():
    assert served(Model(), weights(extra=torch.ones(2))) == "did not reach the model: extra"


def test_values_that_the_loader_makes_are_not_those_that_were_read():
    assert "did not reach the model: norm" in served(Model(doubles=True), weights())


def test_nan_is_served_as_nan():
    given = weights(q=torch.full((4, 3), float("nan")))
    assert served(Model(), given) == served(Model(), given) == ""


def test_tensors_of_another_shape_are_watched_anew():
    model = Model()
    assert served(model, weights()) == ""
    wider = weights(embed=torch.randn(6, 2))
    assert served(model, wider) == ""
    assert torch.equal(model.embed[:5], wider["embed"][:5])


def test_a_parameter_that_moved_is_watched_anew():
    model = Model()
    assert served(model, weights()) == ""
    model.norm = nn.Parameter(torch.zeros(4), False)
    assert served(model, weights(3)) == ""
    assert torch.equal(model.norm, weights(3)["norm"].float())


class Spoken(nn.Module):
    """A language model's two ends; its output matrix is ``head``."""

    def __init__(self, tied, head=None):
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=tied)
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(5, 2)
        if head is not None:
            self.lm_head = nn.Linear(2, 5, bias=False)
            self.lm_head.weight = head(self.model.embed_tokens.weight)


def same(weight):
    return weight


def copied(weight):
    return nn.Parameter(weight.detach().clone())


def zeros(weight):
    return nn.Parameter(torch.zeros_like(weight))


@pytest.mark.parametrize(
    ("tied", "head"),
    [(True, same), (True, copied), (True, None), (False, zeros)],
)
def test_an_output_matrix_that_is_the_models_is_no_problem(tied, head):
    assert untied(Spoken(tied, head)) == ""


def test_an_output_matrix_that_nothing_was_loaded_into_is_found():
    found = untied(Spoken(True, zeros))
    assert found.startswith("SGLang's Spoken keeps an output matrix apart from the embedding")
