"""Tests of axisrl_local.sampling."""

import numpy as np
import pytest
import torch

from axisrl.types import SamplingParams
from axisrl_local.sampling import Draw, Sampler, limit, uniform

CPU = torch.device("cpu")


def logits(rows=4, vocabulary=1000, seed=0):
    return 3 * torch.randn(rows, vocabulary, generator=torch.Generator().manual_seed(seed))


def draw(values, params, uniforms=None):
    uniforms = uniforms or [0.5] * len(values)
    sampler = Sampler(len(values), values.shape[1], CPU)
    draws = [Draw(p, u) for p, u in zip(params, uniforms, strict=True)]
    return sampler(values, draws)


@pytest.mark.parametrize("vocabulary", [1, 7, 256, 257, 5000])
def test_a_token_is_the_one_whose_cumulative_probability_passes_the_number(vocabulary):
    values = logits(1, vocabulary)
    cumulative = values.double().softmax(1).cumsum(1)[0].numpy()
    for number in np.linspace(0, 0.999, 40):
        got = draw(values, [SamplingParams()], [float(number)]).tokens.item()
        assert got == min(int(np.searchsorted(cumulative, number, side="right")), vocabulary - 1)


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_the_ends_of_the_interval_draw_tokens_of_positive_probability(number):
    values = torch.full((1, 600), float("-inf"))
    values[0, [3, 4, 300]] = 0.0
    drawn = draw(values, [SamplingParams()], [number])
    assert drawn.tokens.item() == (300 if number else 3)
    assert drawn.logprobs.item() == pytest.approx(-np.log(3))


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_logprobs_are_of_the_tempered_distribution(temperature):
    values = logits()
    drawn = draw(values, [SamplingParams(temperature=temperature)] * 4, [0.1, 0.4, 0.7, 0.9])
    expected = (values.double() / temperature).log_softmax(1).gather(1, drawn.tokens[:, None])
    torch.testing.assert_close(drawn.logprobs, expected[:, 0], atol=1e-6, rtol=0)


def test_greedy_takes_the_largest_and_reports_it_at_temperature_1():
    values = logits()
    drawn = draw(values, [SamplingParams(temperature=0.0, top_k=3)] * 4)
    assert torch.equal(drawn.tokens, values.argmax(1))
    expected = values.double().log_softmax(1).amax(1)
    torch.testing.assert_close(drawn.logprobs, expected, atol=1e-6, rtol=0)


def test_rows_of_other_parameters_change_no_bit():
    values = logits(5, 3000)
    params = [
        SamplingParams(),
        SamplingParams(temperature=0.0),
        SamplingParams(top_k=5),
        SamplingParams(top_p=0.3),
        SamplingParams(min_p=0.1, temperature=0.5),
    ]
    together = draw(values, params)
    for row, one in enumerate(params):
        alone = draw(values.flip(0), [one] * 5)
        assert alone.tokens[4 - row] == together.tokens[row]
        assert alone.logprobs[4 - row] == together.logprobs[row]


def kept(values, **options):
    limited = limit(values.clone(), [SamplingParams(**options)] * len(values))
    assert torch.equal(limited[limited.isfinite()], values[limited.isfinite()])
    return [set(row.isfinite().nonzero()[:, 0].tolist()) for row in limited]


def test_top_k_keeps_the_k_largest():
    values = logits()
    assert kept(values, top_k=7) == [set(row.topk(7).indices.tolist()) for row in values]


def test_a_top_k_over_the_vocabulary_keeps_all():
    assert [len(row) for row in kept(logits(2, 50), top_k=80)] == [50, 50]


@pytest.mark.parametrize("top_p", [0.01, 0.5, 0.9, 0.9999])
@pytest.mark.parametrize("scale", [0.01, 1.0])
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p, scale):
    values = scale * logits(3, 4000)
    for row, tokens in zip(values, kept(values, top_p=top_p), strict=True):
        mass = row.double().softmax(0)
        inside = sorted((mass[token].item() for token in tokens), reverse=True)
        assert sum(inside) >= top_p - 1e-6
        assert sum(inside[:-1]) < top_p + 1e-6
        assert min(inside) >= mass.sort(descending=True).values[len(tokens) - 1].item()


def test_min_p_keeps_what_is_likely_beside_the_likeliest():
    values = logits()
    for row, tokens in zip(values, kept(values, min_p=0.2), strict=True):
        mass = row.softmax(0)
        assert tokens == set((mass >= 0.2 * mass.max()).nonzero()[:, 0].tolist())


def test_top_p_is_measured_on_what_top_k_left():
    values = torch.tensor([[0.4, 0.3, 0.2, 0.1]]).log()
    assert kept(values, top_k=2, top_p=0.55) == [{0}]
    assert kept(values, top_p=0.55) == [{0, 1}]


def test_each_row_has_its_own_limits():
    values = logits(3, 100)
    rows = limit(
        values.clone(), [SamplingParams(top_k=2), SamplingParams(), SamplingParams(top_k=9)]
    )
    assert rows.isfinite().sum(1).tolist() == [2, 100, 9]


def test_a_row_of_nan_reports_nan_and_harms_no_other():
    values = logits(2)
    clean = draw(values, [SamplingParams()] * 2)
    values[0] = float("nan")
    drawn = draw(values, [SamplingParams()] * 2)
    assert torch.isnan(drawn.logprobs[0])
    assert drawn.tokens[1] == clean.tokens[1] and drawn.logprobs[1] == clean.logprobs[1]


def test_random_numbers_depend_on_seed_and_index_alone_and_fill_the_interval():
    numbers = np.array([uniform(seed, index) for seed in range(40) for index in range(50)])
    assert uniform(7, 3) == numbers[7 * 50 + 3]
    assert numbers.min() >= 0 and numbers.max() < 1
    assert len(set(numbers)) == len(numbers)
    assert abs(numbers.mean() - 0.5) < 0.03
    assert np.histogram(numbers, 10, (0, 1))[0].min() > 140


def test_a_sampler_that_was_freed_draws_as_before():
    values, draws = logits(), [Draw(SamplingParams(), 0.3)] * 4
    sampler = Sampler(4, values.shape[1], CPU)
    before = sampler(values, draws)
    sampler.free()
    sampler.restore()
    after = sampler(values, draws)
    assert torch.equal(before.tokens, after.tokens)
    assert torch.equal(before.logprobs, after.logprobs)
