"""Ranks that divide the experts of a mixture, each a process of its own, beside one process that
has the whole model and sees everything."""

import importlib

import numpy as np
import pytest
import torch

from axisrl.config.lora import LoraOptions

pytestmark = pytest.mark.needs("megatron")
ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
job_of, learn = ranks.job_of, ranks.learn
EXPERT, PARTS = {"expert": 2}, {"expert_tensor": 2}
SEQUENCE = {"tensor": 2, "sequence": True}
SIZES = {"vocab_size": 96, "num_hidden_layers": 2, "num_experts": 4}
MIXED = {**SIZES, "num_hidden_layers": 3, "mlp_only_layers": [0]}


def near(found, alone):
    """Losses and norms of every step are those of one process, the weights of all ranks the
    same."""
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
    assert len({got[2] for got in found}) == 1


@pytest.mark.parametrize("head", ["lm", "value"])
@pytest.mark.parametrize("options", [EXPERT, PARTS], ids=["experts", "parts"])
def test_shares_that_divide_experts_are_as_one(four, make_model, tmp_path, options, head):
    """One has three micro-batches, the other two: it answers for its experts in a third pass."""
    spec = make_model("qwen3_moe", head=head, **MIXED)
    job = job_of(spec, tmp_path, options, size=2, micro=3)
    near(four.learn(job), learn(0, 1, job | {"size": 1}))


@pytest.mark.parametrize("options", [EXPERT, {"pipeline": 2} | EXPERT], ids=str)
def test_shares_that_divide_experts_train_the_adapter_of_one(four, make_model, tmp_path, options):
    spec = make_model("qwen3_moe", **SIZES)
    size = 2 * options.get("pipeline", 1)
    given = {"lora": LoraOptions(rank=2, update="adapter"), "lr": 1e-2}
    job = job_of(spec, tmp_path, options, size=size, micro=3, common=given)
    near(four.learn(job), learn(0, 1, job | {"size": 1}))


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (2, SEQUENCE),
        (2, SEQUENCE | EXPERT),
        (2, {"context": 2} | EXPERT),
        (4, SEQUENCE | PARTS),
        (4, EXPERT),
        (4, {"expert": 2, "expert_tensor": 2, "distributed_optimizer": False}),
        (4, {"pipeline": 2} | EXPERT),
        (4, {"pipeline": 2, "virtual": 2} | EXPERT),
    ],
    ids=str,
)
def test_experts_are_divided_beside_everything_else(four, make_model, tmp_path, size, options):
    spec = make_model("qwen3_moe", **SIZES | {"num_hidden_layers": 4})
    job = job_of(spec, tmp_path, options, size=size, micro=3)
    near(four.learn(job), learn(0, 1, job | {"size": 1}))


def test_ranks_that_have_the_same_experts_divide_their_moments(four, make_model, tmp_path):
    """Ranks that divide everything else, and share no batches."""
    job = job_of(make_model("qwen3_moe", **SIZES), tmp_path, SEQUENCE, size=2)
    job |= {"steps": 1, "holds": True}
    options = SEQUENCE | {"distributed_optimizer": False}
    divided, whole = four.learn(job), four.learn(job | {"options": options})
    assert divided[0] < 0.9 * whole[0]


@pytest.mark.parametrize("options", [EXPERT, PARTS, {"pipeline": 2} | EXPERT], ids=str)
def test_a_checkpoint_continues_bit_for_bit_and_has_no_layout(four, make_model, tmp_path, options):
    spec = make_model("qwen3_moe", **SIZES)
    of_ranks, of_one = tmp_path / "of ranks", tmp_path / "of one"
    of_ranks.mkdir()
    of_one.mkdir()
    size = 4 if "pipeline" in options else 2
    first = job_of(spec, tmp_path, options, size=size) | {"steps": 1}
    four.learn(first | {"save": of_ranks})
    again = first | {"load": of_ranks}
    resumed, whole = four.learn(again), four.learn(first | {"steps": 2})
    assert resumed[0][2] == whole[0][2]
    assert resumed[0][3] == whole[0][3][1:]
    near(resumed, learn(0, 1, again | {"size": 1, "save": of_one}))
    after = four.learn(first | {"load": of_one, "steps": 0})
    assert after[0][2] == learn(0, 1, first | {"size": 1, "load": of_one, "steps": 0})[2]


@pytest.mark.parametrize("options", [EXPERT, PARTS], ids=["experts", "parts"])
def test_all_ranks_send_the_weights_to_who_receives(four, make_model, tmp_path, options):
    job = job_of(make_model("qwen3_moe", **SIZES), tmp_path, options, size=2)
    by_file = four.learn(job)[0][2]
    sending = job | {"options": {**options, "transport": "nccl"}, "receives": True}
    assert four.learn(sending)[0] == (by_file, by_file, "nccl")


def test_experts_of_all_ranks_are_offered_under_their_own_names(four, make_model, tmp_path):
    spec = make_model("qwen3_moe", **SIZES)
    job = job_of(spec, tmp_path, EXPERT, size=2) | {"steps": 0}
    assert four.learn(job)[0][2] == learn(0, 1, job | {"size": 1})[2]


def test_one_process_on_a_cpu_gathers_from_nobody():
    from axisrl_megatron.mixture import dispatch

    cpu, cuda = torch.device("cpu"), torch.device("cuda")
    assert dispatch(cpu, 0)["moe_token_dispatcher_type"] == "alltoall"
    if not torch.cuda.is_available():
        assert dispatch(cpu, 8)["moe_token_dispatcher_type"] == "allgather"
    else:
        assert dispatch(cuda, 8)["moe_token_dispatcher_type"] == "alltoall"


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two CUDA devices")
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("options", [EXPERT, PARTS, SEQUENCE | EXPERT], ids=str)
def test_two_gpus_are_as_one(pair, make_model, tmp_path, options, dtype):
    half = {"hidden_size": 128, "head_dim": 32, "moe_intermediate_size": 128}
    spec = make_model("qwen3_moe", dtype=dtype, device="cuda", **SIZES | half)
    job = job_of(spec, tmp_path, options, micro=3)
    alone, *found = learn(0, 1, job), *pair.learn(job)
    tolerance = 1e-3 if dtype == "float32" else 3e-2
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=tolerance)
    assert found[0][2] == found[1][2]
