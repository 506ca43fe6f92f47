import dataclasses

import numpy as np

from axisrl.runtime.partial import continued, joined
from axisrl.types import GenerateRequest, GenerateResult, Handle, SamplingParams


def piece(ids, version, finish="abort"):
    return GenerateResult(
        ids=np.asarray(ids, np.int32),
        logprobs=-np.asarray(ids, np.float32),
        versions=np.full(len(ids), version, np.int32),
        finish_reason=finish,
        cached_tokens=1,
        passes=len(ids),
    )


CALL = GenerateRequest(
    id="r-0", prompt_ids=np.asarray([1, 2], np.int32), sampling=SamplingParams(max_tokens=5), seed=7
)


def test_a_call_goes_on_from_its_own_tokens_within_its_budget():
    rest = continued(CALL, [piece([5, 6], 0), piece([7], 1)])
    assert rest.prompt_ids.tolist() == [1, 2, 5, 6, 7]
    assert (rest.sampled_before, rest.sampling.max_tokens, rest.seed) == (3, 5, 7)


def test_a_call_that_was_not_interrupted_is_as_it_was():
    assert continued(CALL, []) is CALL


def test_pieces_keep_the_versions_and_logprobs_they_were_sampled_with():
    whole = joined([piece([5, 6], 0), piece([], 1), piece([7], 2, "stop")])
    assert whole.ids.tolist() == [5, 6, 7]
    assert whole.logprobs.tolist() == [-5, -6, -7]
    assert whole.versions.tolist() == [0, 0, 2]
    assert (whole.finish_reason, whole.cached_tokens, whole.passes) == ("stop", 3, 3)


def told(count):
    return Handle(store="s", key="k", shape=(count, 1, 1), dtype="|u1", owner="o", checksum=0)


def test_each_piece_tells_the_experts_its_tokens_were_sampled_with():
    call = dataclasses.replace(CALL, routing_from=1)
    first = dataclasses.replace(piece([5, 6], 0), routing=(told(2),))
    rest = continued(call, [first, piece([], 1)])
    assert rest.routing_from == 3, "token 6 is told by the call that goes on from it"
    last = dataclasses.replace(piece([7], 2, "stop"), routing=(told(1),))
    assert joined([first, piece([], 1), last]).routing == (told(2), told(1))
