"""Ranks that divide the tokens of a batch (context parallel), or of a layer (sequence parallel),
beside one process that has all of them."""

import dataclasses
import importlib

import numpy as np
import pytest
import torch

from axisrl.errors import RankLost
from axisrl.protocols.loss import LossResult
from axisrl.runtime.batch import with_weights
from axisrl.testing.sequences import PullLoss

pytestmark = pytest.mark.needs("megatron")
ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
as_one, job_of = ranks.as_one, ranks.job_of
CONTEXT, SEQUENCE, SIZES = ranks.CONTEXT, ranks.SEQUENCE, ranks.SIZES


@pytest.mark.parametrize("head", ["lm", "value"])
@pytest.mark.parametrize("family", ["qwen2", "qwen3"])
@pytest.mark.parametrize("options", [CONTEXT, SEQUENCE], ids=["context", "sequence"])
def test_ranks_that_share_the_tokens_are_as_one(pair, make_model, tmp_path, options, family, head):
    spec = make_model(family, head=head, **{**SIZES, **ranks.FAMILIES[family]})
    as_one(pair, job_of(spec, tmp_path, options))


class RowLoss(PullLoss):
    """Each row's likelihood a token, at each of its tokens, and their entropy."""

    def __call__(self, batch):
        mask_N = batch.mask_N.float()
        sums = [
            torch.zeros(8).index_add(0, batch.trajectory_N, each * mask_N)
            for each in (batch.logprobs_N, torch.ones_like(mask_N))
        ]
        of_row_N = (sums[0] / sums[1].clamp(min=1)).exp()[batch.trajectory_N]
        return LossResult(per_token_N=mask_N * (of_row_N + 0.1 * batch.entropy_N))


@pytest.mark.parametrize("size", ["two", "four"])
@pytest.mark.parametrize("last", [(9, 9, 9, 9, 9), (1,), (1, 2), (1, 1, 1, 1, 1)])
def test_rows_cut_anywhere_have_one_loss(request, make_model, tmp_path, size, last):
    """``last`` tokens of each row: fewer than chunks, trained by one rank alone, whole."""
    spec = make_model("llama", **SIZES)
    samples = [
        end(one, count) for one, count in zip(ranks.rows(spec, len(last)), last, strict=True)
    ]
    found, options = {"two": ("pair", CONTEXT), "four": ("four", {**SEQUENCE, **CONTEXT})}[size]
    job = job_of(spec, tmp_path, options, loss=RowLoss(needs={"entropy"}))
    job["samples"] = with_weights(samples, "token_mean", 0)
    as_one(request.getfixturevalue(found), job)


def test_another_core_attention_sees_what_is_not_here(pair, make_model, tmp_path):
    """On a CPU without gradients, so without steps."""
    job = job_of(make_model("qwen3", **SIZES), tmp_path, ranks.FLEX, steps=0)
    alone, *others = ranks.learn(0, 1, job), *pair.learn(job)
    for got in others:
        np.testing.assert_allclose(got[0][0], alone[0][0], atol=2e-5)


def test_a_core_attention_that_would_see_its_own_tokens_alone_is_refused(
    pair, make_model, tmp_path
):
    options = {**CONTEXT, "attention": "torch.nn:Identity"}
    answers = pair.ask(job_of(make_model(**SIZES), tmp_path, options))
    assert all("would see the tokens of its own rank alone" in str(a[1]) for a in answers)


@pytest.mark.parametrize("options", [CONTEXT, ranks.TENSOR], ids=["context", "tensor"])
def test_a_rank_that_fails_is_lost_to_the_others(pair, make_model, tmp_path, options):
    """It fails after its answers, before the gradients: the other waits for it in a layer."""
    job = job_of(make_model(**SIZES), tmp_path, options, loss=Failing(), timeout_s=3.0)
    failed, left = pair.ask(job)
    assert failed[1].args == ("no loss",), failed
    assert isinstance(left[1], RankLost), left


class Failing(PullLoss):
    """A loss that fails on the first rank."""

    def __call__(self, batch):
        if not torch.distributed.get_rank():
            raise RuntimeError("no loss")
        return super().__call__(batch)


def end(sample, count):
    """The last tokens of a sample."""
    columns = {
        item.name: getattr(sample, item.name)[-count:]
        for item in dataclasses.fields(sample)
        if isinstance(getattr(sample, item.name), np.ndarray)
    }
    return dataclasses.replace(sample, **columns)


@pytest.mark.parametrize("head", ["lm", "value"])
@pytest.mark.parametrize("sequence", [False, True], ids=["tensor", "sequence"])
def test_four_ranks_that_share_layers_and_tokens_are_as_one(
    four, make_model, tmp_path, sequence, head
):
    spec = make_model("qwen3", head=head, **SIZES)
    as_one(four, job_of(spec, tmp_path, {"tensor": 2, "context": 2, "sequence": sequence}))


def test_shares_of_ranks_that_divide_their_tokens_are_as_one(four, make_model, tmp_path):
    """Two shares of two; and three ranks, whose chunks are sixths."""
    spec = make_model("qwen3", **SIZES)
    job = job_of(spec, tmp_path, CONTEXT)
    alone, *others = ranks.learn(0, 1, job), *four.learn(job)
    for got in others:
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
    assert len({got[2] for got in others}) == 1
    as_one(four.first(3), job | {"options": {"context": 3}})
