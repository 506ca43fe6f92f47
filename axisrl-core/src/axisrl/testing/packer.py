"""What a :class:`axisrl.protocols.Packer` promises. It does not measure speed; random inputs come
from fixed seeds."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.errors import ConfigError
from axisrl.protocols.packer import Packer
from axisrl.testing.cases import PackerCase
from axisrl.testing.harness import CheckFailed, Subject, Suite, require
from axisrl.types import PackBudget, PackedBatch, Sample

PackerSubject = Subject[PackerCase]
_NOT_COLUMNS = ("trajectory", "handles")


def random_samples(rng: np.random.Generator, count: int, longest: int) -> list[Sample]:
    """``count`` samples of 1 to ``longest`` tokens, every token with an id of its own."""
    lengths = np.minimum(1 + rng.geometric(min(1.0, 3.0 / longest), count), longest)
    extra = bool(rng.integers(2))
    ends = np.cumsum(lengths + 1)
    return [
        _sample(
            rng, trajectory=i // 2, first=int(end - length - 1), length=int(length), extra=extra
        )
        for i, (end, length) in enumerate(zip(ends, lengths, strict=True))
    ]


def every_token_is_in_exactly_one_batch(subject: PackerSubject) -> None:
    """Each row is one sample, whole, in every column that is set and in no other."""
    packer: Packer = subject.build()
    for name, samples, budget in _rounds(subject):
        seen: list[int] = []
        for batch in packer.pack(samples, budget):
            seen.extend(batch.rows)
            for row, index in enumerate(batch.rows):
                _require_row(f"{name}, sample {index}", batch, row, samples[index])
        require(
            sorted(seen) == list(range(len(samples))),
            f"{name}: {len(samples)} samples came back as rows {sorted(seen)}",
        )


def budgets_and_ranks_are_kept(subject: PackerSubject) -> None:
    """No batch over the budget; as many batches a rank; ordered by rank; starts that add up."""
    packer: Packer = subject.build()
    for name, samples, budget in _rounds(subject):
        batches = packer.pack(samples, budget)
        for batch in batches:
            require(
                batch.tokens <= budget.max_tokens,
                f"{name}: a batch of {batch.tokens} tokens is over the {budget.max_tokens}",
            )
            starts = batch.row_starts
            require(
                starts[0] == 0 and len(starts) == len(batch.rows) + 1,
                f"{name}: row_starts {starts.tolist()} for {len(batch.rows)} rows",
            )
        _require_ranks(name, batches, budget.ranks)


def more_ranks_than_rows_give_empty_batches(subject: PackerSubject) -> None:
    """Also when there is nothing to pack."""
    packer: Packer = subject.build()
    for count in (0, 1, 3):
        samples = random_samples(np.random.default_rng(count), count, 8)
        batches = packer.pack(samples, PackBudget(max_tokens=16, ranks=4))
        _require_ranks(f"{count} rows on 4 ranks", batches, 4)
        rows = sum(len(batch.rows) for batch in batches)
        require(rows == count, f"{count} rows on 4 ranks came back as {rows}")


def unpack_is_the_inverse_of_pack(subject: PackerSubject) -> None:
    """Every column of every sample, and an array that came from elsewhere."""
    packer: Packer = subject.build()
    for name, samples, budget in _rounds(subject):
        for batch in packer.pack(samples, budget):
            for column in ("ids", "advantages", "loss_mask"):
                rows = packer.unpack(batch, batch.columns[column])
                require(
                    len(rows) == len(batch.rows),
                    f"{name}: unpack gave {len(rows)} of {len(batch.rows)} rows",
                )
                for index, got in zip(batch.rows, rows, strict=True):
                    want = getattr(samples[index], column)
                    require(
                        np.array_equal(got, want),
                        f"{name}, sample {index}: unpack(pack(x)) is not x for {column}",
                    )


def same_input_same_batches(subject: PackerSubject) -> None:
    """Two instances, two calls."""
    for name, samples, budget in _rounds(subject):
        first = subject.build().pack(samples, budget)
        second = subject.build().pack(list(samples), budget)
        layout = [[(batch.rank, batch.rows) for batch in batches] for batches in (first, second)]
        require(layout[0] == layout[1], f"{name}: two calls laid the rows out differently")


def a_sample_over_the_budget_is_a_config_error(subject: PackerSubject) -> None:
    """Naming its length and the budget."""
    sample = _sample(np.random.default_rng(0), trajectory=0, first=0, length=43, extra=False)
    try:
        subject.build().pack([sample], PackBudget(max_tokens=17))
    except ConfigError as error:
        require(
            "43" in str(error) and "17" in str(error),
            f"the error names not both 43 and 17: {error.message}",
        )
        return
    raise CheckFailed("a sample of 43 tokens under a budget of 17 raised no ConfigError")


def few_batches_are_used(subject: PackerSubject) -> None:
    """At most twice as many as tokens and budget demand, rounded up to the ranks."""
    packer: Packer = subject.build()
    for name, samples, budget in _rounds(subject):
        tokens = sum(len(sample.ids) for sample in samples)
        least = -(-tokens // budget.max_tokens)
        most = -(-2 * least // budget.ranks) * budget.ranks
        used = len(packer.pack(samples, budget))
        require(used <= most, f"{name}: {used} batches where {least} hold all tokens")


class PackerSuite(Suite):
    """Tries a packer that lays rows end to end with ``PackerCase``s."""

    kind = "packer"
    checks = (
        every_token_is_in_exactly_one_batch,
        budgets_and_ranks_are_kept,
        more_ranks_than_rows_give_empty_batches,
        unpack_is_the_inverse_of_pack,
        same_input_same_batches,
        a_sample_over_the_budget_is_a_config_error,
        few_batches_are_used,
    )


def _rounds(subject: PackerSubject) -> Iterator[tuple[str, list[Sample], PackBudget]]:
    for seed in range(subject.case.rounds):
        rng = np.random.default_rng(seed)
        longest = int(rng.integers(1, 60))
        samples = random_samples(rng, int(rng.integers(1, 30)), longest)
        slack = int(rng.integers(0, 3 * longest))
        budget = PackBudget(max_tokens=longest + slack, ranks=int(rng.integers(1, 5)))
        yield f"round {seed}", samples, budget


def _sample(
    rng: np.random.Generator, *, trajectory: int, first: int, length: int, extra: bool
) -> Sample:
    def floats() -> NDArray[np.float32]:
        return rng.normal(size=length).astype(np.float32)

    tokens = np.arange(first, first + length + 1, dtype=np.int32)
    sample = Sample(
        trajectory=trajectory,
        ids=tokens[:-1],
        labels=tokens[1:],
        loss_mask=rng.random(length) < 0.6,
        advantages=floats(),
        rollout_logprobs=floats(),
        versions=rng.integers(0, 4, length).astype(np.int32),
        temperature=np.ones(length, np.float32),
    )
    if not extra:
        return sample
    return dataclasses.replace(
        sample, weights=floats(), old_logprobs=floats(), returns=floats(), old_values=floats()
    )


def _columns(sample: Sample) -> dict[str, NDArray[Any]]:
    """The per-token arrays of a sample that are set."""
    found = {field.name: getattr(sample, field.name) for field in dataclasses.fields(sample)}
    return {
        name: array
        for name, array in found.items()
        if name not in _NOT_COLUMNS and array is not None
    }


def _require_row(what: str, batch: PackedBatch, row: int, sample: Sample) -> None:
    window = slice(int(batch.row_starts[row]), int(batch.row_starts[row + 1]))
    length = len(sample.ids)
    want = _columns(sample) | {"trajectory": np.full(length, sample.trajectory, np.int32)}
    require(
        set(batch.columns) == set(want),
        f"{what}: columns {sorted(batch.columns)} instead of {sorted(want)}",
    )
    for name, array in want.items():
        got = batch.columns[name][window]
        require(np.array_equal(got, array), f"{what}: column {name!r} changed")
        require(got.dtype == array.dtype, f"{what}: {name!r} is {got.dtype}, not {array.dtype}")
    require(
        np.array_equal(batch.positions[window], np.arange(length)),
        f"{what}: positions do not count from 0",
    )


def _require_ranks(name: str, batches: Sequence[PackedBatch], ranks: int) -> None:
    found = [batch.rank for batch in batches]
    require(found == sorted(found), f"{name}: batches are not ordered by rank: {found}")
    counts = [found.count(rank) for rank in range(ranks)]
    require(
        len(set(counts)) == 1 and sum(counts) == len(found),
        f"{name}: the {ranks} ranks get {counts} batches",
    )
