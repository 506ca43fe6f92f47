"""Engine and trainer agree on the log-probability of every sampled token, index by index."""

import asyncio

import numpy as np
import pytest

from axisrl.config.base import NoConfig
from axisrl.runtime.batch import with_weights
from axisrl.testing.sequences import PullLoss, packed, prompts, sample_of, trained
from axisrl.types import BuildContext, GenerateRequest, ModelSpec, SamplingParams
from axisrl_local.config import EngineConfig
from axisrl_local.engine import LocalEngine
from axisrl_local.tiny import TinyModel

TEMPERATURES = (1.0, 0.7, 1.3)
ROWS = 6


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    path = TinyModel(NoConfig(), BuildContext(run_dir=cache)).fetch(cache)
    return ModelSpec(name="tiny", path=path, device="cpu")


async def sampled_rows(engine, spec, temperature):
    """A packed batch of sampled rows and what the engine recorded for their trained tokens."""
    params = SamplingParams(temperature=temperature, max_tokens=16)
    requests = [
        GenerateRequest(id=f"{i}", prompt_ids=ids, sampling=params, seed=i)
        for i, ids in enumerate(prompts(spec, ROWS, seed=int(10 * temperature)))
    ]
    results = await asyncio.gather(*(engine.generate(request) for request in requests))
    samples = [
        sample_of(request.prompt_ids, result, i, temperature)
        for i, (request, result) in enumerate(zip(requests, results, strict=True))
    ]
    batch = packed(with_weights(samples, "token_mean", 1))
    return batch, np.concatenate([result.logprobs for result in results])


async def worst_gap(engine, trainer, spec):
    """Largest difference at every temperature."""
    gaps = []
    for temperature in TEMPERATURES:
        batch, recorded = await sampled_rows(engine, spec, temperature)
        gaps.append(np.abs(trained(batch, trainer.logprobs([batch])[0]) - recorded).max())
    return max(gaps)


@pytest.mark.parametrize("transport", ["shared_memory", "disk"])
def test_engine_and_trainer_agree_before_and_after_a_weight_update(
    tiny, make_trainer, tmp_path, transport
):
    async def play():
        engine = LocalEngine(
            EngineConfig(max_batch=4, max_context=256), BuildContext(run_dir=tmp_path)
        )
        trainer = make_trainer(tiny, transport=transport)
        await engine.start(tiny)
        before = await worst_gap(engine, trainer, tiny)
        batch, _ = await sampled_rows(engine, tiny, 1.0)
        trainer.step([batch], PullLoss())
        stale = await worst_gap(engine, trainer, tiny)
        update = trainer.weight_update(1)
        ack = await engine.update_weights(update)
        after = await worst_gap(engine, trainer, tiny)
        await engine.stop()
        return before, stale, after, update, ack

    before, stale, after, update, ack = asyncio.run(play())
    assert before <= 1e-5
    assert stale > 1e-3, "the step changed nothing, so the next line would prove nothing"
    assert after <= 1e-5
    assert (ack.version, ack.checksum) == (update.version, update.checksum)
