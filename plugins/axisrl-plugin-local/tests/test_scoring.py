"""Tests of axisrl_local.scoring, through the engine that scores."""

import asyncio
import dataclasses

import numpy as np
import pytest
import torch

from axisrl.errors import EngineFailure
from axisrl.types import GenerateRequest, SamplingParams
from axisrl_local.load import load_model

KINDS = ("llama", "qwen2", "qwen3")


def text(length, seed=0, size=97):
    return np.random.default_rng(seed).integers(0, size, length).astype(np.int32)


def whole_logits(spec, ids, temperature):
    logits = load_model(spec)(torch.tensor(ids.astype(np.int64))[None]).logits[0, :-1]
    logp = (logits.detach() / temperature).log_softmax(-1)
    return logp.gather(1, torch.tensor(ids[1:].astype(np.int64))[:, None])[:, 0].numpy()


@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.3])
def test_scores_are_those_of_the_whole_logits(serve, tiny, temperature):
    ids = text(200)
    scores = serve(lambda engine: engine.score(ids, temperature))
    assert (scores.shape, scores.dtype) == ((199,), np.float32)
    np.testing.assert_allclose(scores, whole_logits(tiny, ids, temperature), atol=1e-5)


def test_the_head_is_computed_in_chunks(serve, tiny):
    """300 tokens are more than one chunk of 256."""
    ids = text(300)
    scores = serve(lambda engine: engine.score(ids, 1.0), max_context=512)
    np.testing.assert_allclose(scores, whole_logits(tiny, ids, 1.0), atol=1e-5)


@pytest.mark.parametrize("length", [1, 2])
def test_short_texts_have_one_score_fewer_than_tokens(serve, length):
    assert serve(lambda engine: engine.score(text(length), 1.0)).shape == (length - 1,)


def test_scores_are_the_logprobs_the_engine_sampled_with(serve):
    async def play(engine):
        sampling = SamplingParams(temperature=0.7, max_tokens=12)
        request = GenerateRequest(id="r", prompt_ids=text(9), sampling=sampling, seed=3)
        result = await engine.generate(request)
        return result, await engine.score(np.concatenate([request.prompt_ids, result.ids]), 0.7)

    result, scores = serve(play)
    np.testing.assert_allclose(scores[8:], result.logprobs, atol=1e-5)


def test_requests_that_run_draw_the_same_bits_beside_scores(serve):
    async def play(engine):
        sampling = SamplingParams(max_tokens=20)
        requests = [
            GenerateRequest(id=str(n), prompt_ids=text(9, n), sampling=sampling, seed=n)
            for n in range(4)
        ]
        alone = await asyncio.gather(*map(engine.generate, requests))
        beside = asyncio.gather(*map(engine.generate, requests))
        scores = []
        while not beside.done():
            scores.append(await engine.score(text(50), 1.0))
        return alone, await beside, scores

    alone, beside, scores = serve(play)
    assert [r.logprobs.tobytes() for r in alone] == [r.logprobs.tobytes() for r in beside]
    assert len(scores) > 1 and all(np.array_equal(score, scores[0]) for score in scores)


def test_a_paused_engine_scores(serve):
    async def play(engine):
        await engine.pause()
        return await engine.score(text(5), 1.0)

    assert len(serve(play)) == 4


@pytest.mark.parametrize(
    ("ids", "temperature", "told"),
    [
        (text(257), 1.0, "257 tokens of a context of 256"),
        (text(0), 1.0, "shape"),
        (np.asarray([5, 100], np.int32), 1.0, "outside the vocabulary"),
        (text(5), 0.0, "temperature 0"),
        (text(5), float("nan"), "temperature nan"),
    ],
)
def test_what_cannot_be_scored_is_refused(serve, ids, temperature, told):
    with pytest.raises(EngineFailure, match=told):
        serve(lambda engine: engine.score(ids, temperature))


def test_the_longest_text_that_fits_is_scored(serve):
    assert len(serve(lambda engine: engine.score(text(256), 1.0))) == 255


def test_an_engine_that_is_not_started_does_not_score(serve):
    async def play(engine):
        await engine.stop()
        await engine.score(text(5), 1.0)

    with pytest.raises(EngineFailure, match="not started"):
        serve(play)


def test_logits_that_are_not_finite_are_an_engine_failure(serve, tiny):
    async def play(engine):
        with torch.no_grad():
            engine._runner._model.model.norm.weight.fill_(float("nan"))
        await engine.score(text(5), 1.0)

    with pytest.raises(EngineFailure, match="not finite"):
        serve(play)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model_scores_as_the_trainer(make_model, make_trainer, kind):
    from transformers import AttentionInterface

    from axisrl.testing.sequences import packed, random_samples
    from axisrl_local.packed import register_packed_attention
    from axisrl_local.scoring import score
    from axisrl_local.slots import ATTENTION, slot_attention

    AttentionInterface.register(ATTENTION, slot_attention)
    register_packed_attention()
    spec = make_model(kind)
    sample = random_samples(spec, 1, temperature=0.7)[0]
    everywhere = dataclasses.replace(sample, loss_mask=np.ones(len(sample.ids), bool))
    everywhere.temperature[:] = 0.7
    ids = np.append(sample.ids, sample.labels[-1:])
    with torch.inference_mode():
        got = score(load_model(spec, attention=ATTENTION), ids, 0.7)
    want = make_trainer(spec).logprobs([packed([everywhere])])[0]
    np.testing.assert_allclose(got, want, atol=1e-5)
