"""Stages of a pipeline, each a process of its own, beside one process that has the whole model:
Megatron's schedules over gloo, with what they ask of CUDA replaced in the processes."""

import dataclasses
import importlib

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions
from axisrl.errors import RankLost
from axisrl.testing.sequences import PullLoss

pytestmark = pytest.mark.needs("megatron")
ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
job_of = ranks.job_of
STAGES = {"pipeline": 2}
INTERLEAVED = {"pipeline": 2, "virtual": 2}
SIZES = {"vocab_size": 96, "num_hidden_layers": 4}
KINDS = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": False},
    "qwen3": {"vocab_size": 97},
}


@pytest.fixture(autouse=True)
def on_cpus(request):
    """Where there are GPUs, Megatron's stages are on them."""
    if torch.cuda.is_available() and request.node.get_closest_marker("gpu") is None:
        pytest.skip("its stages are on CPUs")


def alone_of(job):
    """What one process answers that has the whole model."""
    return ranks.learn(0, 1, job | {"size": 1})


def check_as_one(alone, found):
    """Answers, norms, losses; the ranks' weights are the same, and rank 0 has them all."""
    for got in found:
        for before, after in zip(got[0] + got[1], alone[0] + alone[1], strict=True):
            np.testing.assert_allclose(before, after, atol=2e-4)
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
    assert len({got[2] for got in found}) == 1


@pytest.mark.parametrize("head", ["lm", "value"])
@pytest.mark.parametrize("options", [STAGES, INTERLEAVED], ids=["stages", "interleaved"])
@pytest.mark.parametrize("kind", KINDS)
def test_stages_are_as_one(four, make_model, tmp_path, kind, options, head):
    spec = make_model(kind, head=head, **{**SIZES, **KINDS[kind]})
    job = job_of(spec, tmp_path, options, size=2, micro=3)
    check_as_one(alone_of(job), four.learn(job))


def test_the_only_micro_batch_passes_all_stages(four, make_model, tmp_path):
    spec = make_model("llama", **SIZES)
    for options in (STAGES, INTERLEAVED):
        job = job_of(spec, tmp_path, options, size=2)
        check_as_one(alone_of(job), four.learn(job))


@pytest.mark.parametrize(
    "options",
    [
        {"pipeline": 4},
        {"pipeline": 4, "virtual": 2},
        {**INTERLEAVED, "tensor": 2},
        {**STAGES, "tensor": 2, "sequence": True},
        {**STAGES, "context": 2},
        {**INTERLEAVED, "context": 2},
    ],
    ids=lambda options: " ".join(f"{name}-{size}" for name, size in options.items()),
)
def test_stages_of_other_sizes_are_as_one(four, make_model, tmp_path, options):
    spec = make_model("qwen3", **SIZES | KINDS["qwen3"] | {"num_hidden_layers": 8})
    job = job_of(spec, tmp_path, options, micro=2)
    check_as_one(alone_of(job), four.learn(job))


@pytest.mark.parametrize("targets", ["all-linear", ("layers.3.mlp.down_proj",)])
@pytest.mark.parametrize("options", [STAGES, {**INTERLEAVED, "tensor": 2}], ids=["2", "4"])
def test_stages_train_the_adapter_of_one(four, make_model, tmp_path, options, targets):
    """And one goes on from what they saved; a stage may have no part of it."""
    spec = make_model("llama", **SIZES)
    lora = LoraOptions(rank=2, update="adapter", targets=targets)
    size = 2 * options.get("tensor", 1)
    job = job_of(spec, tmp_path, options, size=size, micro=3, common={"lora": lora, "lr": 1e-2})
    alone = alone_of(job)
    check_as_one(alone, four.learn(job))
    saved = tmp_path / "saved"
    saved.mkdir()
    four.learn(job | {"steps": 1, "save": saved})
    one = alone_of(job | {"steps": 2, "load": saved})
    np.testing.assert_allclose(one[3], alone[3][1:], rtol=2e-4)


@pytest.mark.parametrize("options", [STAGES, INTERLEAVED], ids=["stages", "interleaved"])
def test_shares_with_other_numbers_of_micro_batches_are_as_one(four, make_model, tmp_path, options):
    """Of five rows one share has two and the other three: with three micro-batches asked for, one
    has two."""
    spec = make_model("llama", **SIZES)
    job = job_of(spec, tmp_path, options, micro=3)
    alone, *found = alone_of(job), *four.learn(job)
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
    assert len({got[2] for got in found}) == 1


def test_a_checkpoint_goes_from_layout_to_layout(four, make_model, tmp_path):
    spec = make_model("llama", **SIZES)
    steps = [(STAGES, 2), ({}, 1), ({"tensor": 2}, 2), (INTERLEAVED, 2), ({"pipeline": 4}, 4)]
    folder, stats = None, []
    for at, (options, size) in enumerate(steps):
        job = job_of(spec, tmp_path, options, size=size, micro=3) | {"steps": 1}
        job |= {"load": folder} if folder else {}
        folder = tmp_path / str(at)
        folder.mkdir()
        job["save"] = folder
        found = alone_of(job) if size == 1 else four.learn(job)[0]
        stats += found[3]
    alone = alone_of(job_of(spec, tmp_path, {}, micro=3) | {"steps": len(steps)})
    np.testing.assert_allclose(stats, alone[3], rtol=5e-4)
    assert found[2] == alone_of(job_of(spec, tmp_path, {}, load=folder) | {"steps": 0})[2]


@pytest.mark.parametrize("options", [STAGES, INTERLEAVED], ids=["stages", "interleaved"])
def test_stages_resume_bit_for_bit(four, make_model, tmp_path, options):
    job = job_of(make_model("llama", **SIZES), tmp_path, options, size=2, micro=3)
    saved = tmp_path / "saved"
    saved.mkdir()
    four.learn(job | {"steps": 2, "save": saved})
    resumed = four.learn(job | {"steps": 1, "load": saved})
    whole = four.learn(job)
    assert resumed[0][2] == whole[0][2]
    assert resumed[0][3] == whole[0][3][2:]


def test_every_stage_sends_weights_to_who_receives(four, make_model, tmp_path):
    job = job_of(make_model("qwen3", **SIZES), tmp_path, INTERLEAVED, size=2)
    by_file = four.learn(job)[0][2]
    sending = job | {"options": {**INTERLEAVED, "transport": "nccl"}, "receives": True}
    assert four.learn(sending)[0] == (by_file, by_file, "nccl")


def test_half_types_keep_their_masters_on_every_stage(four, make_model, tmp_path):
    spec = make_model("llama", dtype="bfloat16", **SIZES)
    job = job_of(spec, tmp_path, STAGES, size=2, micro=2)
    alone, *found = alone_of(job), *four.learn(job)
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=3e-2, atol=1e-2)
    assert found[0][2] == found[1][2]


class Failing(PullLoss):
    """A loss in which the stage that computes it fails."""

    def __call__(self, batch):
        raise ArithmeticError("no loss")


class Endless(PullLoss):
    """A loss whose gradient is not finite."""

    def __call__(self, batch):
        result = super().__call__(batch)
        return dataclasses.replace(result, per_token_N=result.per_token_N * float("inf"))


def test_no_stage_takes_an_update_that_is_not_finite(four, make_model, tmp_path):
    job = job_of(make_model("llama", **SIZES), tmp_path, STAGES, size=2, micro=2)
    before, got = four.learn(job | {"steps": 0}), four.learn(job | {"loss": Endless()})
    assert not np.isfinite([norm for answer in got for _, norm in answer[3]]).any()
    assert {answer[2] for answer in got} == {answer[2] for answer in before}


@pytest.mark.parametrize("options", [STAGES, INTERLEAVED], ids=["stages", "interleaved"])
def test_stages_do_not_wait_for_ever_for_one_that_fails(four, make_model, tmp_path, options):
    job = job_of(make_model("llama", **SIZES), tmp_path, options, size=2, micro=3)
    first, last = four.ask(job | {"loss": Failing(), "timeout_s": 3.0})
    assert isinstance(first[1], RankLost), first
    assert isinstance(last[1], ArithmeticError), last


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [STAGES, INTERLEAVED], ids=["stages", "interleaved"])
def test_two_gpus_are_as_one(pair, make_model, tmp_path, options, dtype):
    sizes = {**SIZES, "hidden_size": 128, "head_dim": 32, "intermediate_size": 128}
    spec = make_model("qwen3", dtype=dtype, device="cuda", **sizes)
    job = job_of(spec, tmp_path, options, size=2, micro=3)
    alone, *found = alone_of(job), *pair.learn(job)
    near = 1e-3 if dtype == "float32" else 3e-2
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=near, atol=near)
        for answer, wanted in zip(got[0], alone[0], strict=True):
            np.testing.assert_allclose(answer, wanted, atol=2 * near)
    assert found[0][2] == found[1][2]
