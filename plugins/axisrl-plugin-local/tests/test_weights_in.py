"""Tests of axisrl_local.weights_in, through the engine that takes the updates."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.types import GenerateRequest, SamplingParams, TensorMeta, WeightUpdate

LONG = SamplingParams(max_tokens=200)


def request(seed=0, length=10, sampling=LONG, **fields):
    ids = np.random.default_rng(seed).integers(4, 97, length).astype(np.int32)
    return GenerateRequest(
        id=str(seed), **{"prompt_ids": ids, "sampling": sampling, "seed": seed, **fields}
    )


def update_of(tiny, folder, version=1, change=lambda tensors: None, **fields):
    tensors = load_file(tiny.path / "model.safetensors")
    for tensor in tensors.values():
        tensor += 0.01
    change(tensors)
    path = folder / f"v{version}.safetensors"
    save_file(tensors, path)
    metas = tuple(
        TensorMeta(name=name, shape=tuple(t.shape), dtype="float32") for name, t in tensors.items()
    )
    update = WeightUpdate(
        version=version,
        transport="disk",
        location=str(path),
        tensors=metas,
        checksum=weights_checksum(tensors),
    )
    return dataclasses.replace(update, **fields)


async def until_it_runs(engine, requests=1):
    while len(engine._scheduler.active) < requests:
        await asyncio.sleep(0)


def test_new_weights_are_echoed_and_flush_the_prefixes(serve, tiny, tmp_path):
    update = update_of(tiny, tmp_path)

    async def play(engine):
        old = await engine.generate(request(1, sampling=SamplingParams(max_tokens=5)))
        ack = await engine.update_weights(update)
        new = await engine.generate(request(1, sampling=SamplingParams(max_tokens=5)))
        return old, ack, new

    old, ack, new = serve(play)
    assert (ack.version, ack.checksum) == (1, update.checksum)
    assert (set(old.versions), set(new.versions)) == ({0}, {1})
    assert new.cached_tokens == 0
    assert not np.array_equal(old.logprobs, new.logprobs)


def test_tied_embeddings_stay_tied_after_an_update(serve, tiny, tmp_path):
    async def play(engine):
        await engine.update_weights(update_of(tiny, tmp_path))
        model = engine._runner._model
        return torch.equal(model.lm_head.weight, model.model.embed_tokens.weight)

    assert serve(play)


def rename(tensors):
    tensors["model.stray.weight"] = tensors.pop("model.norm.weight")


def reshape(tensors):
    tensors["model.norm.weight"] = tensors["model.norm.weight"][:32]


def retype(tensors):
    tensors["model.norm.weight"] = tensors["model.norm.weight"].half()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (rename, r"lacks model\.norm\.weight and has unexpected model\.stray\.weight"),
        (reshape, r"model\.norm\.weight \(\(32,\) for \(64,\)\)"),
        (retype, r"model\.norm\.weight \(.*float16.*float32"),
    ],
)
def test_a_bad_update_names_its_tensors_and_changes_nothing(serve, tiny, tmp_path, change, reason):
    update = update_of(tiny, tmp_path, change=change)

    async def play(engine):
        before = await engine.generate(request(1, sampling=SamplingParams(max_tokens=5)))
        with pytest.raises(WeightSyncError, match=reason):
            await engine.update_weights(update)
        after = await engine.generate(request(1, sampling=SamplingParams(max_tokens=5)))
        return before, after

    before, after = serve(play)
    assert before.logprobs.tobytes() == after.logprobs.tobytes()
    assert set(after.versions) == {0}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"location": "/nowhere/v1.safetensors"}, "cannot be read"),
        ({"transport": "nccl"}, "cannot receive weights by 'nccl'"),
        ({"tensors": ()}, "weight update 1 lacks"),
    ],
)
def test_an_update_that_cannot_be_taken_says_why(serve, tiny, tmp_path, fields, reason):
    async def play(engine):
        with pytest.raises(WeightSyncError, match=reason):
            await engine.update_weights(update_of(tiny, tmp_path, **fields))

    serve(play)


def test_a_file_that_is_no_safetensors_is_refused(serve, tiny, tmp_path):
    (tmp_path / "bad").write_bytes(b"\x00" * 20)

    async def play(engine):
        with pytest.raises(WeightSyncError, match="cannot be read"):
            await engine.update_weights(update_of(tiny, tmp_path, location=str(tmp_path / "bad")))

    serve(play)


def test_updates_are_refused_while_requests_run_and_taken_after_an_abort(serve, tiny, tmp_path):
    update = update_of(tiny, tmp_path)

    async def play(engine):
        running = asyncio.create_task(engine.generate(request(1)))
        await until_it_runs(engine)
        with pytest.raises(WeightSyncError, match="1 requests run"):
            await engine.update_weights(update)
        await engine.pause()
        await engine.abort()
        held = asyncio.create_task(engine.generate(request(2, sampling=SamplingParams())))
        await asyncio.sleep(0)
        ack = await engine.update_weights(update)
        await engine.resume()
        return ack, await running, await held

    ack, running, held = serve(play)
    assert ack.version == 1 and set(running.versions) <= {0} and set(held.versions) == {1}


def test_logits_that_are_not_finite_fail_the_request_and_leave_no_trace(serve, tiny, tmp_path):
    def poison(tensors):
        tensors["model.norm.weight"][:] = float("nan")
        tensors["model.layers.0.self_attn.v_proj.weight"][:] = float("nan")

    async def play(engine):
        asked = request(1, 40, sampling=SamplingParams(max_tokens=5))
        await engine.update_weights(update_of(tiny, tmp_path, 1, poison))
        with pytest.raises(EngineFailure, match="token 0 of request '1' are not finite"):
            await engine.generate(asked)
        await engine.update_weights(update_of(tiny, tmp_path, 2))
        return await engine.generate(request(2, 3, sampling=SamplingParams(max_tokens=5)))

    assert np.isfinite(serve(play).logprobs).all()


def test_a_stopped_engine_starts_again_at_version_0(serve, tiny, tmp_path):
    async def play(engine):
        first = await engine.generate(request(1, sampling=SamplingParams(max_tokens=5)))
        await engine.update_weights(update_of(tiny, tmp_path))
        await engine.stop()
        await engine.start(tiny)
        return first, await engine.generate(request(1, sampling=SamplingParams(max_tokens=5)))

    first, again = serve(play)
    assert set(again.versions) == {0}
    assert first.logprobs.tobytes() == again.logprobs.tobytes()
