"""Experts that an engine told, from its calls to the tokens of a packed batch."""

import asyncio
import dataclasses
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axisrl.builtin.linear_packer import LinearPacker
from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.errors import ConfigError, EngineFailure, StoreError
from axisrl.runtime.partial import continued, joined
from axisrl.runtime.routing import (
    ExpertsReader,
    experts_of,
    joined_parts,
    replaying_trainer,
    require_whole,
    routing_engine,
)
from axisrl.runtime.trajectory import Trajectory
from axisrl.testing.fakes import scripted_experts
from axisrl.trace import Trace
from axisrl.types import (
    BuildContext,
    GenerateRequest,
    GenerateResult,
    Handle,
    PackBudget,
    SamplingParams,
)

SAMPLING = SamplingParams(max_tokens=50)
CALL = GenerateRequest(
    id="r-0", prompt_ids=np.asarray([1, 2, 3], np.int32), sampling=SAMPLING, seed=0, routing_from=1
)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return BuildContext(run_dir=tmp_path_factory.mktemp("run"))


async def said(store, call, ids, finish="stop"):
    """What an engine answers that says ``ids``."""
    ids = np.asarray(ids, np.int32)
    parts = ()
    if len(ids):
        path = np.concatenate([call.prompt_ids, ids])
        told = scripted_experts(path)[call.routing_from : -1]
        parts = (await store.put(told, owner="engine-0"),)
    return GenerateResult(
        ids=ids,
        logprobs=np.zeros(len(ids), np.float32),
        versions=np.zeros(len(ids), np.int32),
        finish_reason=finish,
        routing=parts,
    )


async def grown(store, turns):
    """A trace of ``turns`` = (where it goes on, what is shown, pieces that are said), and the
    parts told."""
    trace, parts = Trace(), []
    trace.append("prompt", [7, 8], parent=None)
    for parent, shown, pieces in turns:
        leaf = trace.append("observation", shown, parent=parent % len(trace))
        call = dataclasses.replace(
            CALL, prompt_ids=trace.ids(leaf), routing_from=trace.routed(leaf)
        )
        results = []
        for ids in pieces:
            results.append(await said(store, continued(call, results), ids, "abort"))
        whole = joined(results)
        if not len(whole.ids):
            continue
        require_whole(call, whole)
        trace.append_sampled(whole, parent=leaf, sampling=SAMPLING, seed=0)
        parts += whole.routing
    return trace, parts


ids = st.lists(st.integers(0, 99), min_size=1, max_size=4)
words = st.lists(st.integers(0, 99), max_size=3)
turn = st.tuples(st.integers(0, 99), ids, st.lists(words, min_size=1, max_size=3))


@settings(max_examples=60, deadline=None)
@given(turns=st.lists(turn, min_size=1, max_size=6), count=st.integers(1, 3))
def test_every_token_of_every_row_has_the_experts_of_its_own_path(place, turns, count):
    """Whatever branches, is truncated or was interrupted, and however rows are packed."""

    async def whole():
        store = MemoryHandleStore(NoConfig(), place)
        samples = []
        for number in range(count):
            trace, parts = await grown(store, turns[number:])
            if trace.sampled_tokens:
                handle = await store.put(await joined_parts(store, parts), owner="worker")
                trace = Trace.from_bytes(trace.to_bytes())
                samples += Trajectory(trace, number, handle).samples
        packer = LinearPacker(NoConfig(), place)
        batches = packer.pack(samples, PackBudget(max_tokens=120)) if samples else []
        return [(batch, await experts_of(store, batch, (1, 3))) for batch in batches]

    for batch, found in asyncio.run(whole()):
        assert found.shape == (2, batch.tokens, 2)
        starts = batch.row_starts.tolist()
        for start, stop in itertools.pairwise(starts):
            expected = scripted_experts(batch.columns["ids"][start:stop])[:, 1:3]
            assert np.array_equal(found[:, start:stop], expected.transpose(1, 0, 2))


def test_only_the_layers_asked_for_are_read(place):
    asked = []

    class Watched(MemoryHandleStore):
        async def get(self, handle):
            asked.append(handle.rows)
            return await super().get(handle)

    async def read():
        store = Watched(NoConfig(), place)
        trace, parts = await grown(store, [(0, [1], [[2, 3]])])
        handle = await store.put(await joined_parts(store, parts), owner="worker")
        asked.clear()
        samples = Trajectory(trace, 0, handle).samples
        (batch,) = LinearPacker(NoConfig(), place).pack(samples, PackBudget(max_tokens=9))
        return await experts_of(store, batch, (2, 3))

    assert asyncio.run(read()).shape == (1, 4, 2)
    assert asked == [(2, 3)]


def test_a_batch_without_experts_is_named(place):
    trace = Trace()
    trace.append("prompt", [7, 8], parent=None)
    result = GenerateResult(
        ids=np.ones(1, np.int32),
        logprobs=np.zeros(1, np.float32),
        versions=np.zeros(1, np.int32),
        finish_reason="stop",
    )
    trace.append_sampled(result, parent=0, sampling=SAMPLING, seed=0)
    samples = Trajectory(trace, 0).samples
    (batch,) = LinearPacker(NoConfig(), place).pack(samples, PackBudget(max_tokens=9))
    assert batch.handles == () and "experts_at" not in batch.columns
    with pytest.raises(ValueError, match="were not"):
        asyncio.run(experts_of(MemoryHandleStore(NoConfig(), place), batch, (0, 1)))


def test_tokens_that_were_not_kept_are_minus_one_beside_those_that_were(place):
    """Of a rollout that was played before experts were kept, and of one that was afterwards."""

    async def read():
        store = MemoryHandleStore(NoConfig(), place)
        samples = []
        for number in range(2):
            trace, parts = await grown(store, [(0, [1], [[2, 3]])])
            whole = await store.put(await joined_parts(store, parts), owner="worker")
            samples += Trajectory(trace, number, whole if number else None).samples
        packer = LinearPacker(NoConfig(), place)
        (batch,) = packer.pack(samples, PackBudget(max_tokens=20))
        return batch, await experts_of(store, batch, (0, 2))

    batch, found = asyncio.run(read())
    kept = batch.columns["experts_at"] >= 0
    assert kept.tolist() == [False] * 4 + [True] * 4
    assert (found[:, ~kept] == -1).all()
    expected = scripted_experts(batch.columns["ids"][kept])[:, :2].transpose(1, 0, 2)
    assert np.array_equal(found[:, kept], expected)


def test_a_backends_thread_reads_through_the_actors_loop(place):
    async def whole():
        store = MemoryHandleStore(NoConfig(), place)
        trace, parts = await grown(store, [(0, [1], [[2, 3]])])
        handle = await store.put(await joined_parts(store, parts), owner="worker")
        samples = Trajectory(trace, 0, handle).samples
        (batch,) = LinearPacker(NoConfig(), place).pack(samples, PackBudget(max_tokens=9))
        read = ExpertsReader(store)
        read.attach()
        got = await asyncio.to_thread(lambda: read(batch, (1, 3)).result(10))
        await store.release([handle])
        with pytest.raises(StoreError):
            await asyncio.to_thread(lambda: read(batch, (1, 3)).result(10))
        return got, await experts_of_ids(batch)

    async def experts_of_ids(batch):
        return scripted_experts(batch.columns["ids"])[:, 1:3].transpose(1, 0, 2)

    got, want = asyncio.run(whole())
    assert np.array_equal(got, want)


def test_an_engine_that_tells_too_little_is_found_at_once():
    part = Handle(store="s", key="k", shape=(2, 1, 1), dtype="|u1", owner="o", checksum=0)
    result = GenerateResult(
        ids=np.ones(2, np.int32),
        logprobs=np.zeros(2, np.float32),
        versions=np.zeros(2, np.int32),
        finish_reason="stop",
        routing=(part,),
    )
    with pytest.raises(EngineFailure, match="of 2 tokens of r-0, not of 3"):
        require_whole(CALL, result)


def test_an_engine_that_cannot_tell_is_refused():
    with pytest.raises(ConfigError, match=r"rollout\.routing"):
        routing_engine(object())


def test_a_trainer_that_routes_by_itself_is_refused():
    with pytest.raises(ConfigError, match=r"rollout\.routing: the trainer"):
        replaying_trainer(object())
