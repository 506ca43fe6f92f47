"""Tests of axisrl_sglang.routing, and of experts told through the fake SGLang."""

import asyncio
import dataclasses
import json
import shutil

import numpy as np
import pytest

from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.errors import ConfigError, EngineFailure, EnvironmentProblem
from axisrl.protocols import RoutingEngine
from axisrl.runtime.partial import continued, joined
from axisrl.types import BuildContext, GenerateRequest, ModelSpec, SamplingParams
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.messages import Experts, Output
from axisrl_sglang.routing import check_capturing, experts_of, fitted, unpacked

PROMPT = np.arange(5, 25, dtype=np.int32)
COUNT = {"num_experts": 300, "num_experts_per_tok": 2}
ASK = GenerateRequest(
    id="r",
    prompt_ids=PROMPT,
    sampling=SamplingParams(max_tokens=6),
    seed=3,
    routing_from=0,
)


@pytest.fixture(scope="module")
def mixture(tiny, tmp_path_factory):
    """The tiny model, with experts as far as its config says."""
    folder = shutil.copytree(tiny.path, tmp_path_factory.mktemp("mixture") / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | COUNT))
    return ModelSpec(name="mixture", path=folder)


@pytest.fixture
def telling(fake_sglang, mixture, tmp_path):
    """``telling(test)`` runs ``test(engine, store)`` on an engine that tells experts."""
    from axisrl_sglang.engine import SglangEngine

    async def whole(test):
        context = BuildContext(run_dir=tmp_path, seed=3)
        store = MemoryHandleStore(NoConfig(), context)
        engine = SglangEngine(EngineConfig(), context)
        assert isinstance(engine, RoutingEngine)

        async def keep(values):
            return await store.put(values, owner="engine-0")

        engine.capture_routing(keep)
        await engine.start(mixture)
        try:
            async with asyncio.timeout(60):
                return await test(engine, store)
        finally:
            await engine.stop()

    return lambda test: asyncio.run(whole(test))


def chosen(ids, mixture):
    """What the fake tells of a path."""
    layers = experts_of(mixture).layers
    running = np.cumsum(np.asarray(ids, np.int64) * np.arange(1, len(ids) + 1))
    first = running[:, None, None] * (2 * np.arange(layers)[:, None] + 1)
    return (first + np.arange(2)) % COUNT["num_experts"]


async def told(store, result):
    return np.concatenate([await store.get(part) for part in result.routing])


def test_experts_are_told_of_every_token_but_the_last(telling, mixture):
    async def test(engine, store):
        result = await engine.generate(ASK)
        return result, await told(store, result)

    result, found = telling(test)
    path = np.concatenate([PROMPT, result.ids])
    assert found.dtype == np.int16 and found.shape[2] == 2
    assert np.array_equal(found, chosen(path, mixture)[:-1])


def test_a_later_turn_tells_only_what_an_earlier_one_did_not(telling, mixture):
    async def test(engine, store):
        first = await engine.generate(ASK)
        path = np.concatenate([PROMPT, first.ids, [9, 9]]).astype(np.int32)
        start = len(PROMPT) + len(first.ids) - 1
        call = dataclasses.replace(ASK, prompt_ids=path, routing_from=start)
        second = await engine.generate(call)
        assert second.cached_tokens > start, "a cached prefix has its experts all the same"
        return np.concatenate([path, second.ids]), start, await told(store, second)

    path, start, found = telling(test)
    assert np.array_equal(found, chosen(path, mixture)[start:-1])


def test_an_interrupted_call_tells_what_the_whole_one_would_have_told(telling, mixture):
    async def test(engine, store):
        call = dataclasses.replace(ASK, sampling=SamplingParams(max_tokens=60))
        other = dataclasses.replace(ASK, session="other", sampling=SamplingParams(max_tokens=2))
        pieces = []
        for _ in range(2):
            running = asyncio.ensure_future(engine.generate(continued(call, pieces)))
            await engine.generate(other)
            await engine.abort()
            pieces.append(await running)
        said = sum(len(piece.ids) for piece in pieces)
        whole = joined([*pieces, await engine.generate(continued(call, pieces))])
        return said, np.concatenate([PROMPT, whole.ids]), await told(store, whole)

    said, path, found = telling(test)
    assert 0 < said < len(path) - len(PROMPT)
    assert np.array_equal(found, chosen(path, mixture)[:-1])


def test_a_stop_string_cuts_the_experts_with_the_tokens(telling, mixture):
    from axisrl.runtime.chat import load_tokenizer

    tokenizer = load_tokenizer(mixture.path)

    async def test(engine, store):
        whole = await engine.generate(ASK)
        text = tokenizer.decode(whole.ids[:2].tolist(), skip_special=False)
        sampling = SamplingParams(max_tokens=6, stop=(text,))
        result = await engine.generate(dataclasses.replace(ASK, sampling=sampling))
        return result, await told(store, result)

    result, found = telling(test)
    assert result.finish_reason == "stop" and len(result.ids) <= 2
    assert len(found) == len(PROMPT) + len(result.ids) - 1


def test_an_engine_that_was_not_asked_to_capture_refuses(serving):
    async def test(engine):
        await engine.generate(ASK)

    with pytest.raises(EngineFailure, match="not started to tell experts"):
        serving(test)


@pytest.mark.usefixtures("fake_sglang")
def test_a_model_without_experts_is_refused_before_anything_starts(tiny, tmp_path):
    from axisrl_sglang.engine import SglangEngine

    engine = SglangEngine(EngineConfig(), BuildContext(run_dir=tmp_path))
    engine.capture_routing(print)
    with pytest.raises(EnvironmentProblem, match="local/tiny has no experts"):
        asyncio.run(engine.start(tiny))


@pytest.mark.parametrize(
    ("name", "value"),
    [("speculative_algorithm", "EAGLE"), ("pp_size", 2), ("chunked_prefill_size", -1)],
)
def test_arguments_under_which_experts_are_lost_are_refused(name, value, tmp_path):
    known = {"enable_return_routed_experts": None}
    check_capturing({name: None if value == "EAGLE" else 1}, known, tmp_path)
    with pytest.raises(ConfigError, match=rf"engine.sglang.{name}.*rollout.routing"):
        check_capturing({name: value}, known, tmp_path)


def test_an_sglang_that_cannot_tell_is_refused(tmp_path):
    with pytest.raises(EnvironmentProblem, match="does not tell the experts"):
        check_capturing({}, {}, tmp_path)


def test_a_mixture_is_read_from_the_part_of_the_config_that_is_text(tmp_path):
    text = {"num_hidden_layers": 4, "n_routed_experts": 64, "num_experts_per_tok": 8}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": text}))
    assert experts_of(ModelSpec(name="m", path=tmp_path)) == Experts(4, 8, 64)


@pytest.mark.parametrize(("count", "dtype"), [(256, np.uint8), (257, np.int16)])
def test_experts_take_as_little_room_as_their_number_allows(count, dtype):
    import base64

    values = np.asarray([0, count - 1] * 6, np.int32)
    found = unpacked(base64.b64encode(values.tobytes()).decode(), Experts(3, 2, count))
    assert found.dtype == dtype and found.shape == (2, 3, 2)
    assert found.reshape(-1).tolist() == values.tolist()


def output(ids, rows, finish="stop"):
    routing = None if rows is None else np.zeros((rows, 1, 1), np.uint8)
    return Output([1] * ids, [0.0] * ids, finish, 0, routing)


@pytest.mark.parametrize(
    ("given", "ids", "rows"),
    [
        (output(3, 22), 3, 22),
        (output(3, 25), 3, 22),  # cut by a stop string: SGLang had gone on
        (output(3, 21, "abort"), 2, 21),
        (output(3, 19, "abort"), 0, None),
        (output(3, None, "abort"), 0, None),
        (output(0, None, "abort"), 0, None),
        (output(0, 19, "abort"), 0, None),
    ],
)
def test_tokens_and_experts_are_cut_to_each_other(given, ids, rows):
    found = fitted(ASK, given)
    assert len(found.ids) == len(found.logprobs) == ids
    assert (None if found.routing is None else len(found.routing)) == rows


def test_kernels_that_do_not_tell_what_they_choose_are_found():
    blank = output(3, 22)._replace(routing=np.zeros((22, 3, 2), np.uint8))
    with pytest.raises(EngineFailure, match="expert 0 for everything") as refused:
        fitted(ASK, blank)
    assert "moe_runner_backend" in refused.value.fix


@pytest.mark.parametrize("rows", [None, 21])
def test_a_finished_request_must_have_all_its_experts(rows):
    with pytest.raises(EngineFailure, match="told no experts of"):
        fitted(ASK, output(3, rows))
