import threading

import pytest

from axisrl.builtin.background import Background


def test_calls_run_in_order_and_drain_waits_for_them():
    worker, seen = Background("t"), []
    for n in range(50):
        worker.submit(lambda n=n: seen.append(n))
    assert worker.drain(10.0)
    assert seen == list(range(50))
    assert worker.stop(10.0)


def test_submit_never_waits_for_a_slow_call():
    worker, gate = Background("t"), threading.Event()
    worker.submit(gate.wait)
    worker.submit(lambda: None)
    assert worker.waiting >= 1
    assert not worker.drain(0.01)
    gate.set()
    assert worker.stop(10.0)


def test_an_error_is_raised_once_at_the_next_submit_and_later_calls_still_run():
    worker, seen = Background("t"), []
    worker.submit(lambda: 1 / 0)
    worker.drain(10.0)
    with pytest.raises(ZeroDivisionError):
        worker.submit(lambda: seen.append(1))
    worker.submit(lambda: seen.append(2))
    assert worker.stop(10.0)
    assert seen == [1, 2]


def test_an_error_in_the_last_call_is_raised_by_stop():
    worker = Background("t")
    worker.submit(lambda: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        worker.stop(10.0)


def test_a_call_that_hangs_is_given_up_and_does_not_hold_the_process():
    worker, gate = Background("t"), threading.Event()
    worker.submit(gate.wait)
    assert not worker.stop(0.01)
    assert worker._thread.daemon
    gate.set()
