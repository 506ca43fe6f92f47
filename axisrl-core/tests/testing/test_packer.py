"""Each check of PackerSuite catches a packer that breaks its promise."""

import dataclasses
import random

import numpy as np
import pytest

from axisrl.builtin.linear_packer import LinearPacker
from axisrl.config.base import NoConfig
from axisrl.errors import ConfigError
from axisrl.testing import PackerCase, PackerSuite
from axisrl.testing import packer as checks
from axisrl.types import PackBudget

CASE = PackerCase(use="toy/packer", rounds=12)


class Good(LinearPacker):
    def __init__(self, context):
        super().__init__(NoConfig(), context)

    def change(self, batch):
        return batch

    def pack(self, samples, budget):
        return [self.change(batch) for batch in super().pack(samples, budget)]


def with_column(batch, name, array):
    return dataclasses.replace(batch, columns=dict(batch.columns) | {name: array})


class DropsTheLastSample(Good):
    def pack(self, samples, budget):
        return super().pack(samples[:-1], budget)


class TruncatesLabels(Good):
    def change(self, batch):
        labels = batch.columns["labels"].copy()
        labels[-1:] = 0
        return with_column(batch, "labels", labels)


class ForgetsAColumn(Good):
    def change(self, batch):
        columns = {k: v for k, v in batch.columns.items() if k != "versions"}
        return dataclasses.replace(batch, columns=columns)


class InventsAColumn(Good):
    def change(self, batch):
        return with_column(batch, "old_logprobs", np.zeros(batch.tokens, np.float32))


class WidensTheMask(Good):
    def change(self, batch):
        return with_column(batch, "loss_mask", batch.columns["loss_mask"].astype(np.int32))


class CountsPositionsOn(Good):
    def change(self, batch):
        return dataclasses.replace(batch, positions=np.arange(batch.tokens, dtype=np.int32))


class IgnoresTheBudget(Good):
    def pack(self, samples, budget):
        return super().pack(samples, PackBudget(max_tokens=10 * budget.max_tokens, ranks=1))


class ForgetsTheRanks(Good):
    def pack(self, samples, budget):
        return super().pack(samples, PackBudget(max_tokens=budget.max_tokens))


class MixesTheRanks(Good):
    def pack(self, samples, budget):
        return super().pack(samples, budget)[::-1]


class LosesStarts(Good):
    def change(self, batch):
        return dataclasses.replace(batch, row_starts=batch.row_starts[-1:])


class UnpacksReversed(Good):
    def unpack(self, packed, per_token):
        return super().unpack(packed, per_token[::-1])


class UnpacksOne(Good):
    def unpack(self, packed, per_token):
        return super().unpack(packed, per_token)[:1]


class Shuffles(Good):
    def pack(self, samples, budget):
        batches = super().pack(samples, budget)
        return [
            dataclasses.replace(batch, rows=tuple(random.sample(batch.rows, len(batch.rows))))
            for batch in batches
        ]


class TakesTooLongSamples(Good):
    def pack(self, samples, budget):
        return super().pack(samples, PackBudget(max_tokens=1000, ranks=budget.ranks))


class NamesNoNumbers(Good):
    def pack(self, samples, budget):
        raise ConfigError("a sample is too long")


class OneRowABatch(Good):
    def pack(self, samples, budget):
        longest = max(len(sample.ids) for sample in samples)
        whole = [
            super(OneRowABatch, self).pack([s], PackBudget(max_tokens=longest))[0] for s in samples
        ]
        spare = -len(whole) % budget.ranks
        return [*whole, *[whole[-1]] * spare]


BROKEN = [
    (checks.every_token_is_in_exactly_one_batch, DropsTheLastSample, "samples came back as rows"),
    (checks.every_token_is_in_exactly_one_batch, TruncatesLabels, "column 'labels' changed"),
    (checks.every_token_is_in_exactly_one_batch, ForgetsAColumn, "sample .*: columns"),
    (checks.every_token_is_in_exactly_one_batch, InventsAColumn, "columns .*old_logprobs"),
    (checks.every_token_is_in_exactly_one_batch, WidensTheMask, "'loss_mask' is int32"),
    (checks.every_token_is_in_exactly_one_batch, CountsPositionsOn, "do not count from 0"),
    (checks.budgets_and_ranks_are_kept, IgnoresTheBudget, "tokens is over the"),
    (checks.budgets_and_ranks_are_kept, ForgetsTheRanks, "ranks get"),
    (checks.budgets_and_ranks_are_kept, MixesTheRanks, "not ordered by rank"),
    (checks.budgets_and_ranks_are_kept, LosesStarts, "row_starts"),
    (checks.more_ranks_than_rows_give_empty_batches, ForgetsTheRanks, "the 4 ranks get"),
    (checks.unpack_is_the_inverse_of_pack, UnpacksReversed, r"unpack\(pack\(x\)\) is not x"),
    (checks.unpack_is_the_inverse_of_pack, UnpacksOne, "unpack gave 1 of"),
    (checks.same_input_same_batches, Shuffles, "laid the rows out differently"),
    (checks.a_sample_over_the_budget_is_a_config_error, TakesTooLongSamples, "no ConfigError"),
    (checks.a_sample_over_the_budget_is_a_config_error, NamesNoNumbers, "not both 43 and 17"),
    (checks.few_batches_are_used, OneRowABatch, "batches where"),
]


def test_a_good_packer_passes_every_check(trial):
    trial.passes(PackerSuite, CASE, Good)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_packer_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


def test_every_check_catches_something():
    assert {check for check, _, _ in BROKEN} == set(PackerSuite.checks)


def test_random_samples_are_the_same_for_the_same_seed():
    first, second = (checks.random_samples(np.random.default_rng(3), 9, 20) for _ in range(2))
    assert [sample.ids.tolist() for sample in first] == [sample.ids.tolist() for sample in second]
