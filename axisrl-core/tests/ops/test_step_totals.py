"""Tests of axisrl.ops.step_totals."""

import math

import torch

from axisrl.ops.adamw import UpdateReport
from axisrl.ops.step_totals import StepTotals
from axisrl.protocols.loss import LossStat

REPORT = UpdateReport(grad_norm=0.5, learning_rate=0.1, applied=True)


def test_masked_tokens_never_enter_a_statistic():
    totals = StepTotals(trained=2)
    values = torch.tensor([math.nan, 1.0, math.inf, 3.0])
    stats = {k: LossStat(values_N=values, reduce=k) for k in ("mean", "sum", "min", "max")}
    totals.add_stats(stats, torch.tensor([1, 3]))
    metrics = totals.finish(REPORT).metrics
    assert [metrics[f"loss/{k}"].value for k in stats] == [2.0, 4.0, 1.0, 3.0]


def test_a_statistic_of_some_micro_batches_is_averaged_over_their_tokens_alone():
    totals = StepTotals(trained=4)
    totals.add_stats({"x": LossStat(values_N=torch.tensor([4.0, 2.0]))}, torch.tensor([0, 1]))
    totals.add_stats({}, torch.tensor([0, 1]))
    metric = totals.finish(REPORT).metrics["loss/x"]
    assert (metric.value, metric.weight) == (3.0, 2.0)


def test_a_fraction_is_of_all_that_was_counted_on_any_rank():
    one, other = StepTotals(), StepTotals()
    one.add_fraction("kept", 3, 4)
    other.add_fraction("kept", 0, 2)
    other.add_fraction("kept", 0, 0)
    metric = StepTotals.over([one, other]).finish(REPORT).metrics["loss/kept"]
    assert (metric.value, metric.weight) == (0.5, 6.0)


def test_totals_of_several_ranks_are_those_of_one_that_saw_everything():
    def measure(totals, *values):
        tensor = torch.tensor(values)
        stats = {k: LossStat(values_N=tensor, reduce=k) for k in ("mean", "sum", "min", "max")}
        totals.tokens += len(values) + 1
        totals.trained += len(values)
        totals.add_loss(tensor.sum())
        totals.add_stats(stats, torch.arange(len(values)))
        return totals

    parts = [(4.0, 2.0, 1.5), (8.0,)]
    alone = StepTotals()
    for part in parts:
        measure(alone, *part)
    ranks = [measure(StepTotals(), *part) for part in parts] + [StepTotals()]
    merged = StepTotals.over([each.on_cpu() for each in ranks])
    assert merged.finish(REPORT) == alone.finish(REPORT)
    assert merged.finish(REPORT).metrics["loss/mean"].weight == 4.0


def test_the_trainers_own_names_are_always_there():
    metrics = StepTotals().finish(REPORT).metrics
    assert set(metrics) == {"loss/total", "loss/grad_norm", "loss/lr", "loss/skipped_nonfinite"}
