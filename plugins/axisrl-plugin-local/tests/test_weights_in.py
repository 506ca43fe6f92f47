"""Tests of axisrl_local.weights_in, through the engine that takes the updates."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.types import AdapterMeta, GenerateRequest, SamplingParams, TensorMeta, WeightUpdate
from axisrl_local.load import load_model
from axisrl_local.weights_in import Received, WeightReceiver, model_tensors

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
        ({"transport": "cuda_ipc"}, "cannot receive weights by 'cuda_ipc'"),
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


Q, UP = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"


@pytest.fixture
def model(tiny):
    return load_model(tiny)


@pytest.fixture
def base(model):
    return {name: value.detach().clone() for name, value in model.named_parameters()}


def adapter_of(model, folder, *, seed=1, targets=(Q, UP), change=lambda tensors: None, **fields):
    """An adapter of random factors; and its tensors."""
    generator, tensors = torch.Generator().manual_seed(seed), {}
    for target in targets:
        rows, columns = model.get_submodule(target).weight.shape
        tensors[f"{target}.lora_A.weight"] = torch.randn(3, columns, generator=generator)
        tensors[f"{target}.lora_B.weight"] = torch.randn(rows, 3, generator=generator)
    change(tensors)
    path = folder / f"adapter-{seed}.safetensors"
    save_file(tensors, path)
    update = WeightUpdate(
        version=seed,
        transport="disk",
        location=str(path),
        tensors=tuple(
            TensorMeta(name=name, shape=tuple(t.shape), dtype="float32")
            for name, t in tensors.items()
        ),
        checksum=weights_checksum(tensors),
        adapter=AdapterMeta(rank=3, scale=0.5, targets=targets),
    )
    return dataclasses.replace(update, **fields), tensors


def require_held(model, base, tensors):
    """Weights are the base's plus what the adapter adds."""
    for name, value in model.named_parameters():
        module = name.removesuffix(".weight")
        want = base[name]
        if f"{module}.lora_A.weight" in tensors:
            a, b = (tensors[f"{module}.lora_{factor}.weight"] for factor in "AB")
            want = want + 0.5 * b @ a
        torch.testing.assert_close(value.detach(), want, atol=1e-5, rtol=1e-5, msg=name)


def test_an_adapter_is_added_to_the_weights_it_started_with(model, base, tmp_path):
    receiver = WeightReceiver(model)
    for seed in range(1, 6):
        update, tensors = adapter_of(model, tmp_path, seed=seed)
        assert receiver.load(update) == update.checksum
        require_held(model, base, tensors)


def test_the_same_adapter_twice_gives_the_same_bits(model, tmp_path):
    receiver = WeightReceiver(model)
    update, _ = adapter_of(model, tmp_path)
    receiver.load(update)
    first = {name: value.detach().clone() for name, value in model.named_parameters()}
    receiver.load(adapter_of(model, tmp_path, seed=2)[0])
    receiver.load(update)
    assert all(torch.equal(first[name], value) for name, value in model.named_parameters())


def test_a_module_the_next_adapter_leaves_out_is_the_bases_again(model, base, tmp_path):
    receiver = WeightReceiver(model)
    receiver.load(adapter_of(model, tmp_path)[0])
    update, tensors = adapter_of(model, tmp_path, seed=2, targets=(UP,))
    receiver.load(update)
    require_held(model, base, tensors)


def test_the_checksum_is_of_the_file_not_of_what_was_announced(model, tmp_path):
    update, tensors = adapter_of(model, tmp_path, checksum="0" * 32)
    assert WeightReceiver(model).load(update) == weights_checksum(tensors)


def drop_a(tensors):
    del tensors[f"{Q}.lora_A.weight"]


def turn_b(tensors):
    tensors[f"{Q}.lora_B.weight"] = tensors[f"{Q}.lora_B.weight"].T.contiguous()


def halve_a(tensors):
    tensors[f"{Q}.lora_A.weight"] = tensors[f"{Q}.lora_A.weight"].half()


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (drop_a, r"lacks model\.layers\.0\.self_attn\.q_proj\.lora_A"),
        (turn_b, r"other shapes or types of .*q_proj\.lora_B"),
        (halve_a, r"q_proj\.lora_A.*float16.*float32"),
    ],
)
def test_a_bad_adapter_names_its_tensors_and_changes_nothing(model, base, tmp_path, change, told):
    receiver = WeightReceiver(model)
    with pytest.raises(WeightSyncError, match=told):
        receiver.load(adapter_of(model, tmp_path, change=change)[0])
    require_held(model, base, {})
    assert receiver.received == Received((), False)


@pytest.mark.parametrize("module", ["model.layers.9.mlp.up_proj", "model.norm"])
def test_an_adapter_of_a_module_the_model_lacks_is_refused(model, tmp_path, module):
    meta = AdapterMeta(rank=3, scale=0.5, targets=(Q, UP, module))
    with pytest.raises(WeightSyncError, match=f"adapts unknown modules: {module}"):
        WeightReceiver(model).load(adapter_of(model, tmp_path, adapter=meta)[0])


def test_an_adapter_after_full_weights_is_refused(model, tiny, tmp_path):
    receiver = WeightReceiver(model)
    receiver.load(adapter_of(model, tmp_path)[0])
    receiver.load(update_of(tiny, tmp_path, 2))
    assert receiver.received == Received((), True)
    with pytest.raises(WeightSyncError, match="full weights have replaced") as caught:
        receiver.load(adapter_of(model, tmp_path, seed=3)[0])
    assert "merged" in caught.value.fix


def test_an_engine_serves_an_adapter_and_echoes_it(serve, tiny, model, tmp_path):
    update, _ = adapter_of(model, tmp_path)

    async def play(engine):
        asked = request(1, sampling=SamplingParams(max_tokens=5))
        old = await engine.generate(asked)
        ack = await engine.update_weights(update)
        return old, ack, await engine.generate(asked)

    old, ack, new = serve(play)
    assert (ack.version, ack.checksum) == (1, update.checksum)
    assert set(new.versions) == {1} and new.cached_tokens == 0
    assert not np.array_equal(old.logprobs, new.logprobs)


def test_after_a_restart_the_next_adapter_is_added_to_the_base(model, tiny, base, tmp_path):
    before = WeightReceiver(model)
    before.load(adapter_of(model, tmp_path)[0])
    held = {name: value.detach().clone() for name, value in model.named_parameters()}
    resumed = load_model(tiny)
    receiver = WeightReceiver(resumed)
    receiver.expect(before.received)
    with torch.no_grad():
        for name, value in resumed.named_parameters():
            value.copy_(held[name])
    update, tensors = adapter_of(model, tmp_path, seed=2)
    receiver.load(update)
    require_held(resumed, base, tensors)


def test_a_restart_remembers_that_full_weights_came(model, tmp_path):
    receiver = WeightReceiver(model)
    receiver.expect(Received((), True))
    with pytest.raises(WeightSyncError, match="full weights have replaced"):
        receiver.load(adapter_of(model, tmp_path)[0])


def test_a_model_is_its_weights_its_buffers_and_what_an_adapter_is_added_to():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2, bias=False), torch.nn.BatchNorm1d(2))
    receiver = WeightReceiver(model)
    receiver._original("0.weight")
    names = [name for name, _ in model_tensors(model, receiver)]
    assert {"0.weight", "1.running_mean", "original/0.weight"} < set(names)
    assert len(names) == len(set(names))
    assert "original/0.weight" not in dict(model_tensors(model, None))
