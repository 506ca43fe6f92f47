"""The engine on a CUDA device: equal to the CPU in float32, exact about itself in bfloat16."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from axisrl.ops.checksum import weights_checksum
from axisrl.types import GenerateRequest, SamplingParams, TensorMeta, WeightUpdate
from axisrl_local.load import load_model

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
]

DTYPES = ("float32", "bfloat16")
SIZES = {"max_batch": 16, "max_context": 1024}


def request(seed, length=20, **options):
    ids = np.random.default_rng(seed).integers(4, 97, length).astype(np.int32)
    sampling = SamplingParams(**{"max_tokens": 24, **options})
    return GenerateRequest(id=str(seed), prompt_ids=ids, sampling=sampling, seed=seed)


def on_cuda(tiny, dtype="float32"):
    return dataclasses.replace(tiny, device="cuda", dtype=dtype)


def together(requests):
    async def play(engine):
        return await asyncio.gather(*(engine.generate(request) for request in requests))

    return play


def alone(requests):
    async def play(engine):
        return [await engine.generate(request) for request in requests]

    return play


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()


def test_float32_draws_what_the_cpu_draws(serve, tiny):
    asked = [request(seed, 5 + 17 * seed) for seed in range(6)]
    cpu = serve(together(asked), tiny, **SIZES)
    cuda = serve(together(asked), on_cuda(tiny), **SIZES)
    for one, other in zip(cuda, cpu, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        np.testing.assert_allclose(one.logprobs, other.logprobs, atol=1e-4)


@pytest.mark.parametrize("dtype", DTYPES)
def test_company_changes_no_bit(serve, tiny, dtype):
    spec = on_cuda(tiny, dtype)
    asked = [request(seed, 3 + 11 * seed) for seed in range(8)]
    crowd = [request(seed, 600 + seed) for seed in range(20, 50)]
    crowded = serve(together([*crowd[:15], *asked[::-1], *crowd[15:]]), spec, **SIZES)
    assert_same(crowded[15:23][::-1], serve(alone(asked), spec, **SIZES))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_resumed_request_is_the_whole_one_bit_by_bit(serve, tiny, dtype):
    spec = on_cuda(tiny, dtype)
    asked = request(1)
    whole = serve(alone([asked]), spec, **SIZES)[0]
    longer = np.concatenate([asked.prompt_ids, whole.ids[:9]])
    resumed = dataclasses.replace(asked, prompt_ids=longer, sampled_before=9)
    rest = serve(alone([resumed]), spec, **SIZES)[0]
    assert rest.ids.tolist() == whole.ids[9:].tolist()
    assert rest.logprobs.tobytes() == whole.logprobs[9:].tobytes()


@pytest.mark.parametrize(("dtype", "close"), [("float32", 1e-4), ("bfloat16", 0.15)])
@pytest.mark.parametrize("options", [{}, {"temperature": 0.7}, {"temperature": 0.0}], ids=str)
def test_logprobs_are_near_a_plain_forward(serve, tiny, dtype, close, options):
    spec = on_cuda(tiny, dtype)
    asked = request(3, 70, **options)
    result = serve(together([asked, request(4)]), spec, **SIZES)[0]
    row = np.concatenate([asked.prompt_ids, result.ids]).astype(np.int64)
    with torch.no_grad():
        logits = load_model(spec)(torch.from_numpy(row)[None].cuda()).logits[0].float().cpu()
    scaled = logits[len(asked.prompt_ids) - 1 : -1] / (asked.sampling.temperature or 1.0)
    expected = scaled.log_softmax(-1).gather(1, torch.from_numpy(result.ids).long()[:, None])
    np.testing.assert_allclose(result.logprobs, expected[:, 0], atol=close)


def test_masks_of_every_kind_draw_on_cuda_what_they_draw_on_the_cpu(serve, tiny):
    asked = [
        request(1, top_k=5),
        request(2, top_p=0.7),
        request(3, min_p=0.2, temperature=1.5),
        request(4, temperature=0.0),
    ]
    cpu = serve(together(asked), tiny, **SIZES)
    cuda = serve(together(asked), on_cuda(tiny), **SIZES)
    assert [one.ids.tolist() for one in cuda] == [other.ids.tolist() for other in cpu]


@pytest.mark.parametrize("dtype", DTYPES)
def test_an_update_from_the_cpu_is_echoed_with_its_checksum(serve, tiny, tmp_path, dtype):
    weights = {
        name: value.detach() * 1.01
        for name, value in load_model(dataclasses.replace(tiny, dtype=dtype)).named_parameters()
    }
    save_file(weights, tmp_path / "v1.safetensors")
    update = WeightUpdate(
        version=1,
        transport="disk",
        location=str(tmp_path / "v1.safetensors"),
        tensors=tuple(
            TensorMeta(name=name, shape=tuple(value.shape), dtype=dtype)
            for name, value in weights.items()
        ),
        checksum=weights_checksum(weights),
    )

    async def play(engine):
        return await engine.update_weights(update)

    ack = serve(play, on_cuda(tiny, dtype), **SIZES)
    assert (ack.version, ack.checksum) == (1, update.checksum)


def test_logits_of_nan_fail_one_request_and_leave_the_device_usable(serve, tiny):
    async def play(engine):
        model = engine._runner._model
        kept = model.model.norm.weight.detach().clone()
        with torch.no_grad():
            model.model.norm.weight.fill_(float("nan"))
        failed = await asyncio.gather(engine.generate(request(1)), return_exceptions=True)
        with torch.no_grad():
            model.model.norm.weight.copy_(kept)
        return failed[0], await engine.generate(request(2))

    failed, later = serve(play, on_cuda(tiny))
    assert "not finite" in str(failed) and np.isfinite(later.logprobs).all()


@pytest.mark.parametrize(("dtype", "atol"), [("float32", 1e-4), ("bfloat16", 0.1)])
def test_scores_are_those_of_the_cpu(serve, tiny, dtype, atol):
    ids = np.random.default_rng(4).integers(4, 97, 500).astype(np.int32)

    async def play(engine):
        return await engine.score(ids, 0.7)

    want, got = serve(play, tiny, **SIZES), serve(play, on_cuda(tiny, dtype), **SIZES)
    np.testing.assert_allclose(got, want, atol=atol)
