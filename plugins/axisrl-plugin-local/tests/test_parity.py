"""Engine and trainer agree on the log-probability of every sampled token, index by index."""

import asyncio

import numpy as np
import pytest

from axisrl.config.base import NoConfig
from axisrl.config.lora import LoraOptions
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


@pytest.mark.parametrize("update", ["merged", "adapter"])
def test_many_updates_of_an_adapter_do_not_drift(tiny, make_trainer, tmp_path, update):
    """What the engine serves after five updates is what it would serve after the last alone."""
    pytest.importorskip("peft", reason="the extra lora is not installed")

    async def play():
        context = BuildContext(run_dir=tmp_path)
        config = EngineConfig(max_batch=4, max_context=256)
        engine, fresh = LocalEngine(config, context), LocalEngine(config, context)
        trainer = make_trainer(tiny, lora=LoraOptions(rank=4, alpha=8, update=update))
        gaps = []
        await engine.start(tiny)
        for version in range(1, 6):
            batch, _ = await sampled_rows(engine, tiny, 1.0)
            trainer.step([batch], PullLoss())
            offer = trainer.weight_update(version)
            ack = await engine.update_weights(offer)
            assert (ack.version, ack.checksum) == (version, offer.checksum)
            gaps.append(await worst_gap(engine, trainer, tiny))
        await fresh.start(tiny)
        await fresh.update_weights(offer)
        served = [dict(e._runner._model.named_parameters()) for e in (engine, fresh)]
        await engine.stop()
        await fresh.stop()
        return gaps, served

    gaps, (served, fresh) = asyncio.run(play())
    assert max(gaps) <= 1e-5
    assert all(bool((served[name] == fresh[name]).all()) for name in served)
