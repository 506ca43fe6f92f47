"""Tests of axisrl_local.scheduler: slots, shared prefixes and what a pass computes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axisrl.runtime.stopping import StopRule
from axisrl.types import GenerateRequest, SamplingParams
from axisrl_local.scheduler import Copy, Job, Scheduler


def job(*prompt):
    request = GenerateRequest(
        id="r", prompt_ids=np.asarray(prompt, np.int32), sampling=SamplingParams(), seed=0
    )
    return Job(request=request, rule=StopRule(frozenset(), (), str))


def advance(scheduler, fixed=True):
    plan = scheduler.plan(fixed)
    scheduler.computed(plan)
    return plan


def test_a_prompt_is_one_chunk_and_then_one_row_a_token():
    scheduler = Scheduler(2, 32, 8)
    scheduler.admit([job(5, 6, 7)])
    first = advance(scheduler)
    assert first.ids[first.chunks[0].rows].tolist() == [5, 6, 7]
    assert list(first.sampled) == [0]
    scheduler.append(0, 9)
    second = advance(scheduler)
    assert second.decode[0].start == 3 and second.ids[0] == 9


def test_a_long_prompt_takes_several_passes_and_samples_after_the_last():
    scheduler = Scheduler(1, 32, 4)
    scheduler.admit([job(*range(10))])
    plans = [advance(scheduler) for _ in range(3)]
    assert [[len(run.rows) for run in plan.runs] for plan in plans] == [[4], [4], [2]]
    assert [bool(plan.sampled) for plan in plans] == [False, False, True]


def test_prompts_get_their_rows_before_answers_go_on():
    scheduler = Scheduler(3, 32, 6)
    scheduler.admit([job(1), job(2)])
    for slot in advance(scheduler).sampled:
        scheduler.append(slot, 8)
    scheduler.admit([job(*range(10, 21))])
    plans = [advance(scheduler) for _ in range(2)]
    assert [[run.slot for run in plan.runs] for plan in plans] == [[2], [0, 2]]
    assert [len(plan.chunks[0].rows) for plan in plans] == [6, 5]


def test_requests_that_arrive_together_end_together():
    scheduler = Scheduler(4, 32, 4)
    scheduler.admit([job(first, 1, 1, 1, 1) for first in range(4)])
    answers = dict.fromkeys(range(4), 0)
    for _ in range(5 + 4):
        for slot in advance(scheduler).sampled:
            scheduler.append(slot, 8)
            answers[slot] += 1
    assert answers == dict.fromkeys(range(4), 5)


def test_a_prompt_uses_free_rows_between_decoding_slots():
    scheduler = Scheduler(3, 32, 5)
    scheduler.admit([job(1), job(2), job(3)])
    for slot in advance(scheduler).sampled:
        scheduler.append(slot, 8)
    scheduler.release(1)
    scheduler.admit([job(20, 21, 22)])
    plan = advance(scheduler)
    assert [run.rows.tolist() for run in plan.decode] == [[0], [2]]
    assert plan.chunks[0].rows.tolist() == [1, 3, 4]


def test_the_members_of_a_group_compute_their_prompt_once():
    scheduler = Scheduler(4, 32, 8)
    group = [job(1, 2, 3, 4, 5) for _ in range(3)]
    waiting = list(group)
    admitted = scheduler.admit(waiting)
    assert admitted == group[:1]
    advance(scheduler)
    scheduler.append(0, 6)
    assert scheduler.admit(group[1:]) == group[1:]
    plan = advance(scheduler)
    assert plan.copies == (Copy(0, 1, 4), Copy(0, 2, 4))
    assert [member.cached for member in group] == [0, 4, 4]
    assert [len(run.rows) for run in plan.runs] == [1, 1, 1]


def test_another_prompt_does_not_wait_behind_a_group():
    scheduler = Scheduler(4, 32, 8)
    same, other = [job(1, 2, 3) for _ in range(2)], job(9, 8)
    assert scheduler.admit([*same, other]) == [same[0], other]


def test_the_next_turn_continues_in_the_slot_of_the_last():
    scheduler = Scheduler(2, 32, 8)
    scheduler.admit([job(1, 2, 3)])
    advance(scheduler)
    scheduler.append(0, 4)
    scheduler.release(0)
    turn = job(1, 2, 3, 4, 5)
    scheduler.admit([turn])
    plan = advance(scheduler)
    assert plan.copies == () and turn.cached == 3
    assert plan.runs[0].slot == 0 and plan.ids[plan.runs[0].rows].tolist() == [4, 5]


def test_a_longer_kept_prefix_is_copied_not_cut():
    scheduler = Scheduler(2, 32, 8)
    scheduler.admit([job(1, 2, 3, 4, 5)])
    advance(scheduler)
    scheduler.release(0)
    scheduler.admit([job(1, 2, 9)])
    assert advance(scheduler).copies == (Copy(0, 1, 2),)


def test_the_slot_idle_longest_is_used_first():
    scheduler = Scheduler(3, 32, 8)
    scheduler.admit([job(1, 1), job(2, 2), job(3, 3)])
    advance(scheduler)
    for slot in (1, 2, 0):
        scheduler.release(slot)
    scheduler.admit([job(7, 7), job(8, 8)])
    assert list(scheduler.active) == [1, 2]


def test_no_more_requests_run_than_there_are_slots():
    scheduler = Scheduler(2, 32, 8)
    jobs = [job(1), job(2), job(3)]
    assert scheduler.admit(jobs) == jobs[:2]


def test_forgetting_drops_every_prefix():
    scheduler = Scheduler(2, 32, 8)
    scheduler.admit([job(1, 2, 3)])
    advance(scheduler)
    scheduler.release(0)
    scheduler.forget()
    again = job(1, 2, 3)
    scheduler.admit([again])
    assert again.cached == 0 and advance(scheduler).copies == ()


def test_a_spoiled_slot_offers_no_prefix():
    scheduler = Scheduler(2, 32, 8)
    scheduler.admit([job(1, 2, 3)])
    advance(scheduler)
    scheduler.spoil(0)
    scheduler.release(0)
    again = job(1, 2, 3)
    scheduler.admit([again])
    assert again.cached == 0


def test_a_full_slot_takes_no_further_token():
    scheduler = Scheduler(1, 4, 4)
    scheduler.admit([job(1, 2)])
    assert scheduler.append(0, 3) and not scheduler.append(0, 4)


@pytest.mark.parametrize(("fixed", "rows"), [(True, 8), (False, 3)])
def test_only_a_fixed_pass_has_idle_rows(fixed, rows):
    scheduler = Scheduler(2, 32, 8)
    scheduler.admit([job(1, 2, 3)])
    assert advance(scheduler, fixed).rows == rows


@settings(max_examples=60)
@given(data=st.data(), fixed=st.booleans())
def test_every_token_is_computed_once_and_in_order(data, fixed):
    """A cache that only copies and computes as planned always holds what the scheduler believes."""
    slots, step_tokens, context = 4, 7, 24
    scheduler = Scheduler(slots, context, step_tokens)
    cache = np.full((slots, context), -1)
    tokens = st.lists(st.integers(0, 2), min_size=1, max_size=12)
    waiting = [job(*prompt) for prompt in data.draw(st.lists(tokens, min_size=1, max_size=10))]
    left = len(waiting)
    while left:
        admitted = scheduler.admit(waiting)
        waiting = [one for one in waiting if one not in admitted]
        plan = scheduler.plan(fixed)
        assert plan.rows <= step_tokens
        rows = np.concatenate([run.rows for run in plan.runs])
        assert len(set(rows.tolist())) == len(rows) and rows.max() < plan.rows
        for source, target, length in plan.copies:
            cache[target, :length] = cache[source, :length]
        for run in plan.runs:
            cache[run.slot, run.start : run.start + len(run.rows)] = plan.ids[run.rows]
        scheduler.computed(plan)
        for slot, one in plan.sampled.items():
            history = [*one.request.prompt_ids.tolist(), *one.ids]
            assert cache[slot, : len(history)].tolist() == history
            one.ids.append(data.draw(st.integers(0, 2)))
            if not scheduler.append(slot, one.ids[-1]) or data.draw(st.booleans()):
                scheduler.release(slot)
                left -= 1
