import numpy as np
import pytest

from axisrl.runtime.batch import samples_of, with_weights
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


def test_entry_t_describes_the_prediction_of_token_t_plus_one():
    (sample,) = samples_of(trace_of(2, 1), np.float32(2.0), 7)
    assert sample.ids.tolist() == [1, 2, 3, 10, 11, 9]
    assert sample.labels.tolist() == [2, 3, 10, 11, 9, 20]
    assert sample.loss_mask.tolist() == [False, False, True, True, False, True]
    assert sample.advantages.tolist() == [0, 0, 2, 2, 0, 2]
    assert sample.rollout_logprobs[sample.loss_mask].tolist() == pytest.approx([-0.1, -0.11, -0.2])
    assert sample.versions.tolist() == [-1, -1, 0, 0, -1, 1]
    assert sample.trajectory == 7


def test_what_was_shown_after_the_last_trained_token_is_no_part_of_a_row():
    trace = trace_of(2, 1)
    (before,) = samples_of(trace, np.float32(1), 0)
    trace.append("observation", [8] * 1000, parent=len(trace) - 1)
    (after,) = samples_of(trace, np.float32(1), 0)
    assert after.loss_mask[-1]
    assert np.array_equal(after.ids, before.ids)
    assert np.array_equal(after.labels, before.labels)


def test_an_advantage_for_each_trained_token_lands_on_its_token():
    (sample,) = samples_of(trace_of(2, 1), np.asarray([1, 2, 3], np.float32), 0)
    assert sample.advantages.tolist() == [0, 0, 1, 2, 0, 3]


def test_advantages_follow_the_tokens_over_branches():
    trace = trace_of(2)
    branch = trace.append("observation", [8], parent=0)
    drawn = GenerateResult(
        ids=np.asarray([30], np.int32),
        logprobs=np.zeros(1, np.float32),
        versions=np.zeros(1, np.int32),
        finish_reason="stop",
    )
    trace.append_sampled(drawn, parent=branch, sampling=SamplingParams(), seed=0)
    first, second = samples_of(trace, np.asarray([1, 2, 3], np.float32), 0)
    assert first.advantages[first.loss_mask].tolist() == [1, 2]
    assert second.advantages[second.loss_mask].tolist() == [3]


def test_a_wrong_number_of_advantages_is_an_error():
    with pytest.raises(ValueError, match="2 advantages for 3 trained tokens"):
        samples_of(trace_of(2, 1), np.zeros(2, np.float32), 0)


def batch():
    return [
        sample
        for number, turns in enumerate([(2,), (4, 2), (1,)])
        for sample in samples_of(trace_of(*turns), np.float32(1.0), number)
    ]


def totals(samples):
    weights = {}
    for sample in samples:
        got = weights.setdefault(sample.trajectory, 0.0)
        weights[sample.trajectory] = got + float(sample.weights.sum())
    return weights


def test_token_mean_gives_every_trained_token_the_same_share():
    samples = with_weights(batch(), "token_mean", 1)
    assert totals(samples) == pytest.approx({0: 2 / 9, 1: 6 / 9, 2: 1 / 9})


def test_sequence_mean_gives_every_trajectory_the_same_share():
    samples = with_weights(batch(), "sequence_mean_token_mean", 1)
    assert totals(samples) == pytest.approx({0: 1 / 3, 1: 1 / 3, 2: 1 / 3})


def test_sum_norm_divides_by_a_fixed_length():
    samples = with_weights(batch(), "sequence_mean_token_sum_norm", 10)
    assert totals(samples) == pytest.approx({0: 2 / 30, 1: 6 / 30, 2: 1 / 30})


def test_a_trajectory_of_two_rows_counts_as_one_sequence():
    (whole,) = samples_of(trace_of(4), np.float32(1.0), 0)
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
