"""Tests of axisrl_sglang.requests."""

import numpy as np
import pytest

from axisrl.errors import EngineFailure
from axisrl.types import GenerateRequest, SamplingParams
from axisrl_sglang.requests import check_request, is_certain, is_masked, sampling_parameters


def request(prompt=(1, 2, 3), before=0, **sampling):
    return GenerateRequest(
        id="r1",
        prompt_ids=np.asarray(prompt, np.int32),
        sampling=SamplingParams(**sampling),
        seed=0,
        sampled_before=before,
    )


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (request(()), r"shape \(0,\)"),
        (request([[1]]), r"shape \(1, 1\)"),
        (request(range(8)), "8 tokens of a context of 8"),
        (request([9, 10]), "outside the vocabulary of 10"),
        (request([-1]), "outside the vocabulary"),
        (request(before=3), "sampled_before 3 does not fit 3"),
        (request(temperature=-0.1), "temperature -0.1"),
        (request(top_p=0.0), "top_p 0"),
        (request(min_p=1.0), "min_p 1"),
    ],
)
def test_what_cannot_run_is_refused_by_name(wrong, why):
    with pytest.raises(EngineFailure, match=f"request 'r1' is refused: .*{why}"):
        check_request(wrong, context=8, vocabulary=10)


def test_a_prompt_that_leaves_room_for_one_token_passes():
    check_request(request(range(7)), context=8, vocabulary=10)


@pytest.mark.parametrize(
    ("sampling", "sent"),
    [
        ({}, {"temperature": 1.0}),
        ({"temperature": 0.0, "top_p": 0.5}, {"temperature": 0.0}),
        ({"top_k": 1}, {"temperature": 1.0, "top_k": 1}),
        ({"top_k": 500}, {"temperature": 1.0, "top_k": 100, "top_p": 1.0, "min_p": 0.0}),
        ({"top_p": 0.5}, {"temperature": 1.0, "top_k": 100, "top_p": 0.5, "min_p": 0.0}),
        ({"min_p": 0.1}, {"temperature": 1.0, "top_k": 100, "top_p": 1.0, "min_p": 0.1}),
    ],
)
def test_masks_come_with_a_finite_top_k(sampling, sent):
    assert sampling_parameters(SamplingParams(**sampling), vocabulary=100) == sent


def test_greedy_is_neither_certain_nor_masked():
    greedy = SamplingParams(temperature=0.0, top_k=1, top_p=0.5)
    assert not is_certain(greedy)
    assert not is_masked(greedy)


def test_one_token_to_choose_from_is_certain():
    assert is_certain(SamplingParams(top_k=1, top_p=0.5))
    assert not is_masked(SamplingParams(top_k=1, top_p=0.5))
