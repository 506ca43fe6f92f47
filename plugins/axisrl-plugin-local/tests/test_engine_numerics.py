"""Numbers of axisrl_local.engine: what is drawn, how likely it was, and what may not change it."""

import asyncio
import shutil

import numpy as np
import pytest
import torch

from axisrl.types import GenerateRequest, SamplingParams
from axisrl_local.load import load_model
from axisrl_local.sampling import limit

GREEDY = SamplingParams(temperature=0.0, max_tokens=24)


def prompt(seed, length):
    return np.random.default_rng(seed).integers(4, 97, length).astype(np.int32)


def request(seed, length=20, sampling=None, **fields):
    sampling = sampling or SamplingParams(max_tokens=16)
    return GenerateRequest(
        id=str(seed), prompt_ids=prompt(seed, length), sampling=sampling, seed=seed, **fields
    )


def all_of(requests):
    async def play(engine):
        return await asyncio.gather(*(engine.generate(request) for request in requests))

    return play


def one_after_another(requests):
    async def play(engine):
        return [await engine.generate(request) for request in requests]

    return play


def full_forward(spec, asked, result):
    """Log-probabilities of the sampled tokens from one plain forward pass over the whole row."""
    model = load_model(spec)
    row = np.concatenate([asked.prompt_ids, result.ids]).astype(np.int64)
    with torch.no_grad():
        logits = model(torch.from_numpy(row)[None]).logits[0, len(asked.prompt_ids) - 1 : -1]
    scaled = logits / (asked.sampling.temperature or 1.0)
    if asked.sampling.temperature:
        limit(scaled, [asked.sampling] * len(scaled))
    return scaled.log_softmax(-1).gather(1, torch.from_numpy(result.ids).long()[:, None])[:, 0]


def assert_same(ours, theirs):
    for one, other in zip(ours, theirs, strict=True):
        assert one.ids.tolist() == other.ids.tolist()
        assert one.logprobs.tobytes() == other.logprobs.tobytes()
        assert one.finish_reason == other.finish_reason


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3"])
def test_greedy_equals_transformers_generate(serve, make_model, tiny, kind):
    spec = make_model(kind, eos_token_id=3)
    for file in tiny.path.glob("tokenizer*"):
        shutil.copy(file, spec.path)
    prompts = [prompt(seed, length) for seed, length in enumerate((3, 20, 70))]
    asked = [
        GenerateRequest(id=str(n), prompt_ids=ids, sampling=GREEDY, seed=n)
        for n, ids in enumerate(prompts)
    ]
    ours = serve(all_of(asked), spec)
    model = load_model(spec)
    for ids, result in zip(prompts, ours, strict=True):
        whole = model.generate(
            torch.from_numpy(ids).long()[None],
            max_new_tokens=24,
            do_sample=False,
            eos_token_id=3,
            pad_token_id=0,
        )
        assert result.ids.tolist() == whole[0, len(ids) :].tolist()


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1.0},
        {"temperature": 0.7},
        {"temperature": 1.3},
        {"temperature": 0.0},
        {"temperature": 0.7, "top_k": 5},
        {"temperature": 1.3, "top_p": 0.8},
        {"temperature": 1.0, "min_p": 0.3},
        {"temperature": 1.1, "top_k": 20, "top_p": 0.9, "min_p": 0.1},
    ],
    ids=str,
)
def test_logprobs_equal_a_plain_forward_under_the_same_masks(serve, tiny, options):
    sampling = SamplingParams(max_tokens=16, **options)
    asked = [request(seed, 5 + 9 * seed, sampling) for seed in range(6)]
    for one, result in zip(asked, serve(all_of(asked)), strict=True):
        expected = full_forward(tiny, one, result).numpy()
        np.testing.assert_allclose(result.logprobs, expected, atol=1e-5)


@pytest.mark.parametrize("batch", [1, 3, 8, 64])
def test_company_changes_no_bit(serve, batch):
    asked = [request(seed, 3 + 7 * (seed % 12)) for seed in range(12)]
    crowd = [request(seed, 5 + seed % 90) for seed in range(100, 102 + min(48, 4 * batch))]
    sizes = {"max_batch": batch, "step_tokens": batch, "max_context": 128}
    alone = serve(one_after_another(asked), **sizes)
    together = serve(all_of(crowd[:5] + asked[::-1] + crowd[5:]), **sizes)
    assert_same(together[5:17][::-1], alone)


def test_longer_company_changes_no_bit(serve):
    short = [request(seed, 10, SamplingParams(max_tokens=40)) for seed in range(3)]
    long = [request(seed, 600, SamplingParams(max_tokens=40)) for seed in range(10, 12)]
    sizes = {"max_context": 1024, "step_tokens": 64}
    assert_same(serve(all_of(long + short), **sizes)[2:], serve(one_after_another(short), **sizes))


def test_mixed_sampling_parameters_do_not_meet(serve):
    params = [
        SamplingParams(max_tokens=8),
        SamplingParams(max_tokens=8, temperature=0.0),
        SamplingParams(max_tokens=8, temperature=0.5, top_k=3),
        SamplingParams(max_tokens=8, top_p=0.5),
        SamplingParams(max_tokens=8, min_p=0.2, temperature=2.0),
    ]
    asked = [request(seed, 12, sampling) for seed, sampling in enumerate(params)]
    assert_same(serve(all_of(asked)), serve(one_after_another(asked)))


def test_a_shared_prompt_changes_no_bit(serve):
    group = [
        GenerateRequest(
            id=str(seed), prompt_ids=prompt(1, 50), sampling=SamplingParams(max_tokens=9), seed=seed
        )
        for seed in range(8)
    ]
    together = serve(all_of(group))
    alone = [serve(all_of([one]))[0] for one in group]
    assert [result.cached_tokens for result in together] == [0] + [49] * 7
    assert [result.cached_tokens for result in alone] == [0] * 8
    assert_same(together, alone)


def test_a_second_turn_reuses_the_first_and_changes_no_bit(serve):
    async def two_turns(engine):
        first = await engine.generate(request(1, 40))
        history = np.concatenate([prompt(1, 40), first.ids, prompt(2, 10)])
        return await engine.generate(
            GenerateRequest(id="2", prompt_ids=history, sampling=SamplingParams(), seed=2)
        ), history

    second, history = serve(two_turns)
    fresh = GenerateRequest(id="2", prompt_ids=history, sampling=SamplingParams(), seed=2)
    assert second.cached_tokens >= 40
    assert_same([second], serve(all_of([fresh])))


@pytest.mark.parametrize("cut", [1, 7, 15])
def test_a_resumed_request_is_the_whole_one_bit_by_bit(serve, cut):
    sampling = SamplingParams(max_tokens=16, temperature=0.9)
    whole = serve(all_of([request(1, 20, sampling)]))[0]
    longer = np.concatenate([prompt(1, 20), whole.ids[:cut]])
    resumed = GenerateRequest(
        id="1", prompt_ids=longer, sampling=sampling, seed=1, sampled_before=cut
    )
    rest = serve(all_of([resumed]))[0]
    assert rest.ids.tolist() == whole.ids[cut:].tolist()
    assert rest.logprobs.tobytes() == whole.logprobs[cut:].tobytes()


def test_without_batch_invariance_the_tokens_are_likely_the_same(serve, tiny):
    asked = [request(seed, 30 + seed, GREEDY) for seed in range(5)]
    exact = serve(all_of(asked))
    loose = serve(all_of(asked), batch_invariant=False)
    for one, result, other in zip(asked, loose, exact, strict=True):
        assert result.ids.tolist() == other.ids.tolist()
        np.testing.assert_allclose(result.logprobs, full_forward(tiny, one, result), atol=1e-5)


def test_seeds_draw_from_the_distribution_they_report(serve):
    sampling = SamplingParams(max_tokens=1, temperature=0.5, top_k=4)
    asked = [
        GenerateRequest(id=str(seed), prompt_ids=prompt(1, 6), sampling=sampling, seed=seed)
        for seed in range(600)
    ]
    results = serve(all_of(asked), max_batch=64)
    told = {int(result.ids[0]): float(np.exp(result.logprobs[0])) for result in results}
    assert len(told) == 4 and sum(told.values()) == pytest.approx(1, abs=1e-5)
    for token, probability in told.items():
        share = sum(int(result.ids[0]) == token for result in results) / len(results)
        assert share == pytest.approx(probability, abs=4 * (probability / len(results)) ** 0.5)


def test_a_prompt_that_joins_while_the_last_slot_decodes_is_seen_whole(serve):
    first = [request(n, 5, SamplingParams(max_tokens=1 if n == 3 else 12)) for n in range(4)]
    asked = [request(seed, 40, SamplingParams(max_tokens=30)) for seed in (10, 11)]

    async def play(engine):
        await asyncio.gather(*(engine.generate(one) for one in first))
        early = asyncio.create_task(engine.generate(asked[0]))
        while not engine._scheduler.active:
            await asyncio.sleep(0)
        assert list(engine._scheduler.active) == [3]
        await asyncio.sleep(0.02)
        return [await engine.generate(asked[1]), await early][::-1]

    sizes = {"max_batch": 4, "step_tokens": 4}
    assert_same(serve(play, **sizes), serve(one_after_another(asked), **sizes))
