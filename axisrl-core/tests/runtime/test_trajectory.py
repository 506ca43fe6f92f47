import numpy as np
import pytest

from axisrl.runtime.trajectory import Trajectory
from axisrl.trace import Trace
from axisrl.types import GenerateResult, SamplingParams


def say(trace, parent, *ids, version=0):
    """A sampled node; its log-probabilities are minus a hundredth of its ids."""
    drawn = GenerateResult(
        ids=np.asarray(ids, np.int32),
        logprobs=-np.asarray(ids, np.float32) / 100,
        versions=np.full(len(ids), version, np.int32),
        finish_reason="stop",
    )
    return trace.append_sampled(drawn, parent=parent, sampling=SamplingParams(), seed=0)


def chain():
    """Prompt 1 2 3, says 10 11, sees 9, says 20."""
    trace = Trace()
    leaf = say(trace, trace.append("prompt", [1, 2, 3], parent=None), 10, 11)
    say(trace, trace.append("observation", [9], parent=leaf), 20, version=1)
    return trace


def crossed():
    """Two branches below one prompt, the older one spoken in last: 10, then 20, then 11."""
    trace = Trace()
    root = trace.append("prompt", [1, 2], parent=None)
    first = say(trace, root, 10)
    say(trace, trace.append("observation", [8], parent=root), 20)
    say(trace, trace.append("observation", [9], parent=first), 11)
    return trace


def test_entry_t_describes_the_prediction_of_token_t_plus_one():
    (sample,) = Trajectory(chain(), 7).with_columns(advantages=np.float32(2))
    assert sample.ids.tolist() == [1, 2, 3, 10, 11, 9]
    assert sample.labels.tolist() == [2, 3, 10, 11, 9, 20]
    assert sample.loss_mask.tolist() == [False, False, True, True, False, True]
    assert sample.advantages.tolist() == [0, 0, 2, 2, 0, 2]
    assert sample.rollout_logprobs[sample.loss_mask].tolist() == pytest.approx([-0.1, -0.11, -0.2])
    assert sample.versions.tolist() == [-1, -1, 0, 0, -1, 1]
    assert sample.trajectory == 7


def test_what_was_shown_after_the_last_trained_token_is_no_part_of_a_row():
    trace = chain()
    (before,) = Trajectory(trace, 0).samples
    trace.append("observation", [8] * 1000, parent=len(trace) - 1)
    (after,) = Trajectory(trace, 0).samples
    assert after.loss_mask[-1]
    assert np.array_equal(after.ids, before.ids)
    assert np.array_equal(after.labels, before.labels)


def test_an_array_over_the_trajectory_lands_on_its_tokens():
    (sample,) = Trajectory(chain(), 0).with_columns(returns=np.asarray([1, 2, 3], np.float32))
    assert sample.returns.tolist() == [0, 0, 1, 2, 0, 3]


def test_arrays_are_in_the_order_of_sampling_whatever_the_rows():
    one = Trajectory(crossed(), 0)
    rows = one.spread(np.asarray([1, 2, 3], np.float32))
    said = {
        int(label): float(value)
        for sample, row in zip(one.samples, rows, strict=True)
        for label, value, trained in zip(sample.labels, row, sample.loss_mask, strict=True)
        if trained
    }
    assert said == {10: 1, 20: 2, 11: 3}


def test_gather_is_the_inverse_of_spread():
    for trace in (chain(), crossed()):
        one = Trajectory(trace, 0)
        values = np.arange(one.tokens, dtype=np.float32) + 1
        assert one.gather(one.spread(values)).tolist() == values.tolist()


def test_turns_are_the_model_calls_in_their_order():
    assert Trajectory(chain(), 0).turn_tokens == (2, 1)
    assert Trajectory(crossed(), 0).turn_tokens == (1, 1, 1)


def test_a_wrong_number_of_entries_is_an_error():
    with pytest.raises(ValueError, match="2 entries for 3 trained tokens"):
        Trajectory(chain(), 0).spread(np.zeros(2, np.float32))


def test_the_closed_row_reads_the_last_token_and_the_others_stay():
    one = Trajectory(crossed(), 0)
    closed = one.closed()
    longer = [len(a.ids) - len(b.ids) for a, b in zip(closed, one.samples, strict=True)]
    assert sorted(longer) == [0, 1]
    (grown,) = [sample for sample, more in zip(closed, longer, strict=True) if more]
    assert grown.ids[-1] == 11
    assert grown.loss_mask[-1]


def test_values_come_back_with_the_state_after_the_last_token():
    one = Trajectory(crossed(), 0)
    worth = [sample.ids.astype(np.float32) for sample in one.closed()]
    tokens, last = one.gather_closed(worth)
    assert tokens.tolist() == [2, 8, 9]
    assert last == 11
