"""Faults come from the seed alone, and are where the run without them went."""

import pytest

from axisrl.chaos.plan import TARGETS, Chaos, draw_faults, phases_of, targets_of
from axisrl.errors import UsageError
from axisrl.runtime.spans import DRIVER, Span, SpanLog, Track


@pytest.fixture
def phases(baseline):
    return phases_of(baseline.path)


def test_the_phases_are_the_drivers_alone(tmp_path):
    log = SpanLog(tmp_path / "events.jsonl")
    log.add(DRIVER, Span("train", 10.0, 2.0), step=4)
    log.add(Track("trainer", "policy"), Span("step", 10.5, 1.0), step=4)
    log.close()
    assert phases_of(tmp_path) == [(4, "train", 10.0, 2.0)]


def test_the_same_seed_is_the_same_plan_and_another_another(phases):
    chaos = Chaos(["engine", "driver", "worker"], every=1, updates=3)
    assert draw_faults(phases, chaos, 7) == draw_faults(phases, chaos, 7)
    assert len({str(draw_faults(phases, chaos, seed)) for seed in range(20)}) == 20


def test_every_block_of_updates_has_one_fault(phases):
    for every, blocks in ((1, [1, 2, 3]), (2, [1, 3]), (5, [1])):
        for seed in range(20):
            faults = draw_faults(phases, Chaos(["engine"], every, 3), seed)
            assert [(fault.step - 1) // every * every + 1 for fault in faults] == blocks


def test_what_is_before_the_first_update_belongs_to_the_first_block(phases):
    start = phases[0]._replace(step=0, name="evaluate")
    chaos = Chaos(["driver"], every=3, updates=3)
    drawn = [draw_faults([start, *phases], chaos, seed) for seed in range(40)]
    assert {len(faults) for faults in drawn} == {1}
    assert ("evaluate", 0) in {(fault.phase, fault.step) for (fault,) in drawn}


def test_every_target_phase_and_edge_is_drawn_sooner_or_later(phases):
    chaos = Chaos(list(TARGETS), every=1, updates=3)
    faults = [fault for seed in range(60) for fault in draw_faults(phases, chaos, seed)]
    assert {fault.target for fault in faults} == set(TARGETS.values())
    assert {fault.phase for fault in faults} == {"rollout", "train", "sync"}
    assert {fault.edge for fault in faults} == {"before", "during", "after"}


def test_a_fault_during_a_phase_comes_within_its_time(phases):
    chaos = Chaos(["driver"], every=1, updates=3)
    faults = [fault for seed in range(60) for fault in draw_faults(phases, chaos, seed)]
    assert all(0 <= fault.delay_s <= 0.25 for fault in faults)
    assert {fault.edge for fault in faults if fault.delay_s} == {"during"}


def test_targets_are_named_once_and_in_order():
    assert targets_of("engine, worker,engine") == ["engine", "worker"]


@pytest.mark.parametrize("given", ["engin", "", "driver,gpu"])
def test_an_unknown_target_is_an_error_that_names_the_choices(given):
    with pytest.raises(UsageError, match="engine, trainer, value, worker, verifier, reward"):
        targets_of(given)
