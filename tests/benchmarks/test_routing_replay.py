"""Tests of benchmarks/routing_replay.py: what it compares. What it measures needs a GPU."""

import asyncio
import importlib.util
import math

import numpy as np
import pytest

from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.runtime.routing import experts_of
from axisrl.testing.fakes import scripted_experts
from axisrl.types import BuildContext, GenerateRequest, GenerateResult, SamplingParams

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="needs megatron-core"
)
LENGTHS = (3, 5)
LOGPROB = -2.0


@pytest.fixture
def replay():
    return pytest.importorskip("routing_replay", reason="its plugins need torch")


@pytest.fixture
def rows(replay, tmp_path):
    """A store and the batches of two calls of 4 tokens' prompts, whose experts were told."""

    async def made():
        store = MemoryHandleStore(NoConfig(), BuildContext(run_dir=tmp_path))
        asked, results = [], []
        for number, length in enumerate(LENGTHS):
            prompt, said = np.arange(4, dtype=np.int32), np.arange(length, dtype=np.int32)
            request = GenerateRequest(
                id=str(number), prompt_ids=prompt, sampling=SamplingParams(max_tokens=9), seed=0
            )
            experts = scripted_experts(np.concatenate([prompt, said]))[:-1]
            asked.append(request)
            results.append(
                GenerateResult(
                    ids=said,
                    logprobs=np.full(length, LOGPROB, np.float32),
                    versions=np.zeros(length, np.int32),
                    finish_reason="length",
                    routing=(await store.put(experts, owner="engine"),),
                )
            )
        return store, await replay.packed_rows(store, asked, results)

    return asyncio.run(made())


def test_every_token_that_passes_has_its_experts(rows):
    store, (batch,) = rows
    found = asyncio.run(experts_of(store, batch, (0, 3)))
    assert batch.tokens == sum(LENGTHS) + 2 * 3
    assert (found >= 0).all()


def test_differences_are_those_of_the_sampled_tokens_alone(replay, rows):
    class Trainer:
        def logprobs(self, batches):
            return [
                np.where(batch.columns["loss_mask"], LOGPROB - 0.5, math.nan) for batch in batches
            ]

    found = replay.differences(Trainer(), rows[1])
    assert found["tokens"] == sum(LENGTHS)
    assert found["k1"] == pytest.approx(0.5) == found["abs_max"]
    assert replay.cells(found)[:2] == [str(sum(LENGTHS)), "0.5"]
