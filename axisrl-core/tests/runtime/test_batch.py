import numpy as np
import pytest

from axisrl.runtime.batch import with_weights
from axisrl.runtime.trajectory import Trajectory
from axisrl.trace import Trace
from axisrl.types import GenerateResult, SamplingParams


def trace_of(*turns, prompt=3):
    """A chain: a prompt, then sampled runs of the given lengths with one observed token between
    them."""
    trace = Trace()
    leaf = trace.append("prompt", range(1, prompt + 1), parent=None)
    for turn, length in enumerate(turns):
        if turn:
            leaf = trace.append("observation", [9], parent=leaf)
        ids = np.arange(length, dtype=np.int32) + 10 * (turn + 1)
        drawn = GenerateResult(
            ids=ids,
            logprobs=-ids.astype(np.float32) / 100,
            versions=np.full(length, turn, np.int32),
            finish_reason="stop",
        )
        leaf = trace.append_sampled(drawn, parent=leaf, sampling=SamplingParams(), seed=0)
    return trace


def batch():
    return [
        sample
        for number, turns in enumerate([(2,), (4, 2), (1,)])
        for sample in Trajectory(trace_of(*turns), number).samples
    ]


def totals(samples):
    weights = {}
    for sample in samples:
        got = weights.setdefault(sample.trajectory, 0.0)
        weights[sample.trajectory] = got + float(sample.weights.sum())
    return weights


def test_token_mean_gives_every_trained_token_the_same_share():
    """Pitfall 8: the denominator counts trained tokens."""
    samples = with_weights(batch(), "token_mean", 1)
    assert totals(samples) == pytest.approx({0: 2 / 9, 1: 6 / 9, 2: 1 / 9})


def test_sequence_mean_gives_every_trajectory_the_same_share():
    samples = with_weights(batch(), "sequence_mean_token_mean", 1)
    assert totals(samples) == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})


def test_sum_norm_divides_by_a_fixed_length():
    samples = with_weights(batch(), "sequence_mean_token_sum_norm", 10)
    assert totals(samples) == pytest.approx({0: 2 / 30, 1: 6 / 30, 2: 1 / 30})


def test_a_trajectory_of_two_rows_counts_as_one_sequence():
    (whole,) = Trajectory(trace_of(4), 0).samples
    rows = [*batch(), whole]  # trajectory 0 now has two rows, 2 + 4 tokens
    samples = with_weights(rows, "sequence_mean_token_mean", 1)
    assert totals(samples) == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})


def test_masked_tokens_weigh_nothing():
    for sample in with_weights(batch(), "token_mean", 1):
        assert not sample.weights[~sample.loss_mask].any()


def test_weights_do_not_depend_on_the_order_of_rows():
    forward = with_weights(batch(), "sequence_mean_token_mean", 1)
    backward = with_weights(batch()[::-1], "sequence_mean_token_mean", 1)[::-1]
    for one, other in zip(forward, backward, strict=True):
        assert np.array_equal(one.weights, other.weights)
