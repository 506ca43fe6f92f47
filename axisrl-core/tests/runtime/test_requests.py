import numpy as np
import pytest

from axisrl.errors import EngineFailure
from axisrl.runtime.requests import check_sampling
from axisrl.types import GenerateRequest, SamplingParams


def request(sampled_before=0, **sampling):
    return GenerateRequest(
        id="r",
        prompt_ids=np.arange(4, dtype=np.int32),
        sampling=SamplingParams(**sampling),
        seed=0,
        sampled_before=sampled_before,
    )


@pytest.mark.parametrize("count", [-1, 4, 9])
def test_more_tokens_sampled_before_than_the_prompt_holds_are_refused(count):
    with pytest.raises(EngineFailure, match=f"'r' is refused: sampled_before {count} does not fit"):
        check_sampling(request(count))


@pytest.mark.parametrize(
    "wrong", [{"temperature": -0.1}, {"top_p": 0.0}, {"top_p": 1.1}, {"min_p": 1.0}, {"min_p": -1}]
)
def test_sampling_parameters_out_of_range_are_refused_with_the_ranges(wrong):
    with pytest.raises(EngineFailure, match="'r' is refused: temperature") as refused:
        check_sampling(request(**wrong))
    assert refused.value.fix == "temperature >= 0, 0 < top_p <= 1, 0 <= min_p < 1"


def test_a_greedy_request_and_a_resumed_one_are_fine():
    check_sampling(request(3, temperature=0.0))
