import asyncio
import itertools

import pytest

from axisrl.config.schema import EvalConfig, SamplingConfig, Use
from axisrl.runtime.evaluate import Evaluator, bootstrap_mean, pass_at_k, wilson
from axisrl.types import Outcome, RolloutSummary, Task


class Tasks:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return Task(id=f"t{index}", data={})


class Pool:
    """Passes task i when ``passes(i, member)``; None is a failed rollout."""

    def __init__(self, passes):
        self.passes, self.calls = passes, []

    async def play(self, stream, plans, sampling):
        self.calls.append((stream, plans, sampling))
        return [[self.one(plan, member) for member in range(plan.size)] for plan in plans]

    def one(self, plan, member):
        passed = self.passes(int(plan.task.id[1:]), member)
        return RolloutSummary(
            id=f"{plan.number}-{member}",
            task_id=plan.task.id,
            group=plan.number,
            member=member,
            outcome=Outcome.ENGINE_ERROR if passed is None else Outcome.COMPLETED,
            reward=None if passed is None else float(passed),
            passed=bool(passed),
            sampled_tokens=10,
        )


def evaluate(passes, **options):
    pool = Pool(passes)
    config = EvalConfig(dataset=Use(use="x"), **options)
    evaluator = Evaluator(config, Tasks(), pool, SamplingConfig(temperature=0.9))
    return asyncio.run(evaluator.run()), pool


def test_greedy_accuracy_is_the_share_of_passed_tasks():
    result, pool = evaluate(lambda task, member: task < 3)
    assert result.metrics["eval/accuracy"] == 0.75
    assert result.metrics["eval/accuracy_low"] < 0.75 < result.metrics["eval/accuracy_high"]
    assert result.metrics["eval/failed_frac"] == 0
    assert pool.calls[0][2].temperature == 0
    assert len(result.rollouts) == 4


def test_pass_at_k_is_drawn_with_the_training_temperature():
    result, pool = evaluate(lambda task, member: member == task, samples=2)
    assert pool.calls[1][2].temperature == 0.9
    assert result.metrics["eval/pass@1"] == pytest.approx(0.25)
    assert result.metrics["eval/pass@2"] == pytest.approx(0.5)
    assert len(result.rollouts) == 4 + 8


def test_sampled_groups_have_numbers_of_their_own_so_that_seeds_differ():
    _, pool = evaluate(lambda task, member: True, samples=2)
    numbers = [plan.number for _, plans, _ in pool.calls for plan in plans]
    assert len(set(numbers)) == 8


def test_an_infrastructure_failure_is_no_wrong_answer():
    result, _ = evaluate(lambda task, member: None if task == 0 else True)
    assert result.metrics["eval/accuracy"] == 1
    assert result.metrics["eval/failed_frac"] == 0.25


def test_failed_samples_count_as_failed_too():
    result, _ = evaluate(lambda task, member: None if member == 1 else True, samples=3)
    assert result.metrics["eval/failed_frac"] == 4 / 16
    assert result.metrics["eval/pass@1"] == 1


def test_when_everything_failed_accuracy_is_absent_and_not_zero():
    result, _ = evaluate(lambda task, member: None)
    assert dict(result.metrics) == {"eval/failed_frac": 1}


def test_tasks_limits_how_many_are_played():
    result, _ = evaluate(lambda task, member: True, tasks=2)
    assert len(result.rollouts) == 2


def test_wilson_interval_of_a_known_case():
    assert wilson(8, 10) == pytest.approx((0.8, 0.4901625, 0.9433178), abs=1e-6)
    assert wilson(0, 10).low == 0
    assert wilson(10, 10).high == pytest.approx(1)


def test_pass_at_k_equals_counting_every_subset():
    drawn = [True, True, False, False, False]
    for k in range(1, 6):
        subsets = list(itertools.combinations(drawn, k))
        share = sum(any(subset) for subset in subsets) / len(subsets)
        assert pass_at_k(2, 5, k) == pytest.approx(share)


def test_bootstrap_is_repeatable_and_holds_the_mean():
    values = [0.0, 1.0] * 20
    interval = bootstrap_mean(values)
    assert interval == bootstrap_mean(values)
    assert interval.low < interval.value == 0.5 < interval.high
