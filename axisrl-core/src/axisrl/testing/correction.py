"""What a :class:`axisrl.protocols.Correction` promises. It does not test what the objective makes
of the weights and the mask.

The batches are those of :mod:`axisrl.testing.loss_batches` with gaps between rollout and trainer
of three sizes: hardly any, the usual, and beyond every threshold.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from axisrl.protocols.correction import Correction, CorrectionResult
from axisrl.protocols.loss import Level, LossInputs
from axisrl.testing.cases import CorrectionCase
from axisrl.testing.harness import CheckSkipped, Subject, Suite, require, require_close
from axisrl.testing.loss_batches import Row, garbage_row, leaves, random_rows

if TYPE_CHECKING:
    import torch
    from torch import Tensor

CorrectionSubject = Subject[CorrectionCase]
_EXACT = 1e-9
_SINGLE = 1e-5
_POISONS = (float("nan"), float("inf"), -float("inf"), 1e4, -1e4)
_GAPS = (1e-3, 0.3, 10.0)
"""Standard deviations of ``lo - lr``, one a row in turn."""


def says_its_level(subject: CorrectionSubject) -> None:
    """A word the packer knows; at level ``token`` no token depends on its trajectory."""
    correction: Correction = subject.build()
    known = typing.get_args(Level)
    level = getattr(correction, "level", None)
    require(level in known, f"level {level!r} is none of {known}")
    if level == "token":
        rows = _rows(0)
        firsts, seconds = zip(*(row.split() for row in rows), strict=True)
        what = "level is 'token', but with a trajectory's halves in two batches"
        _require_same(subject, rows, what, [list(firsts), list(seconds)])


def weights_and_mask_have_one_entry_a_token(subject: CorrectionSubject) -> None:
    """Weights of the inputs' dtype, finite and not negative; a bool mask; stats of one entry a
    token, finite where trained."""
    correction: Correction = subject.build()
    batch = _batch(_rows(1))
    result = _apply(correction, batch)
    shape, weights_N = batch.mask_N.shape, result.weights_N
    require(weights_N.shape == shape, f"weights_N has shape {tuple(weights_N.shape)}")
    dtype = batch.rollout_logprobs_N.dtype
    require(weights_N.dtype == dtype, f"weights_N is {weights_N.dtype} for {dtype} inputs")
    require(_finite(weights_N), "weights_N is not finite")
    require(bool((weights_N >= 0).all()), f"weights_N holds {float(weights_N.min()):g}")
    mask_N = result.mask_N
    require(mask_N.shape == shape, f"mask_N has shape {tuple(mask_N.shape)}")
    require(mask_N.dtype == batch.mask_N.dtype, f"mask_N is {mask_N.dtype}, not bool")
    for name, stat in result.stats.items():
        values_N = stat.values_N
        require(values_N.shape == shape, f"stat {name!r} has shape {tuple(values_N.shape)}")
        trained_N = values_N[batch.mask_N]
        require(_finite(trained_N), f"stat {name!r} is not finite at a trained token")


def agreement_changes_nothing(subject: CorrectionSubject) -> None:
    """Where rollout and trainer agree, every weight is exactly 1 and every trained token kept."""
    correction: Correction = subject.build()
    rows = [dataclasses.replace(row, rollout=row.old.copy()) for row in _rows(2)]
    batch = _batch(rows)
    result = _apply(correction, batch)
    weights = result.weights_N[batch.mask_N]
    require(bool((weights == 1).all()), f"a weight of agreement is {_off(weights):g}, not 1")
    lost = int((batch.mask_N & ~result.mask_N).sum())
    require(not lost, f"{lost} of {int(batch.mask_N.sum())} tokens in agreement are left out")


def it_never_unmasks(subject: CorrectionSubject) -> None:
    """What is not trained stays so, whatever its log-probabilities hold."""
    correction: Correction = subject.build()
    for poison in (0.0, *_POISONS):
        batch = _batch([row.poisoned(poison) for row in _rows(3)])
        new = int((_apply(correction, batch).mask_N & ~batch.mask_N).sum())
        require(not new, f"{new} masked tokens that hold {poison} come back trained")


def no_gradient_flows_through_it(subject: CorrectionSubject) -> None:
    """Weights and stats are detached, even from inputs that carry a gradient."""
    correction: Correction = subject.build()
    batch = _batch(_rows(4))
    assert batch.old_logprobs_N is not None
    batch.old_logprobs_N.requires_grad_()
    batch.rollout_logprobs_N.requires_grad_()
    result = _apply(correction, batch)
    require(not result.weights_N.requires_grad, "weights_N carries a gradient")
    for name, stat in result.stats.items():
        require(not stat.values_N.requires_grad, f"stat {name!r} is not detached")


def masked_tokens_change_nothing(subject: CorrectionSubject) -> None:
    """NaN, infinities and +-1e4 at masked positions: finite weights there, and the same weights,
    mask and stats at the trained ones."""
    correction: Correction = subject.build()
    rows = _rows(5)
    mask_N = _batch(rows).mask_N.numpy()
    clean = _columns(_apply(correction, _batch(rows)))
    for poison in _POISONS:
        result = _apply(correction, _batch([row.poisoned(poison) for row in rows]))
        what = f"with {poison} at masked positions"
        require(_finite(result.weights_N), f"{what}: a weight is not finite")
        for name, column in _columns(result).items():
            require_close(column[mask_N], clean[name][mask_N], atol=_EXACT, what=f"{what}: {name}")


def micro_batches_change_nothing(subject: CorrectionSubject) -> None:
    """One batch, two, or one a trajectory: same weights, mask and stats of each token."""
    rows = _rows(6)
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    _require_same(subject, rows, "two micro-batches", halves)
    _require_same(subject, rows, "a micro-batch a trajectory", [[row] for row in rows])


def order_and_packing_change_nothing(subject: CorrectionSubject) -> None:
    """Rows reversed, and rows dealt out over micro-batches: the same of each token."""
    rows = _rows(7)
    _require_same(subject, rows, "the reverse order", [rows[::-1]])
    _require_same(subject, rows, "another packing", [rows[0::3], rows[1::3], rows[2::3]])


def padding_changes_nothing(subject: CorrectionSubject) -> None:
    """Masked rows and masked tails of garbage: the same of each token."""
    rows = _rows(8)
    _require_same(subject, rows, "padded rows", [[row.padded(3) for row in rows]])
    extra = [garbage_row(4), *rows, garbage_row(1)]
    _require_same(subject, rows, "wholly masked rows beside", [extra])


def a_trajectory_may_be_split_into_rows(subject: CorrectionSubject) -> None:
    """Two rows with one trajectory number, not side by side, count as the one they are."""
    rows = _rows(9)
    firsts, seconds = zip(*(row.split() for row in rows), strict=True)
    _require_same(subject, rows, "trajectories of two rows", [[*firsts, *seconds]])


def it_depends_on_nothing_else(subject: CorrectionSubject) -> None:
    """The same batch gives the same result after another one, and is left as it was."""
    correction: Correction = subject.build()
    batch, untouched = _batch(_rows(10)), _batch(_rows(10))
    first = _columns(_apply(correction, batch))
    _apply(correction, _batch(_rows(11)))
    again = _columns(_apply(correction, batch))
    for name, column in first.items():
        require_close(again[name], column, atol=0.0, what=f"after another batch: {name}")
    for name in ("old_logprobs_N", "rollout_logprobs_N", "mask_N", "trajectory_N"):
        same = bool((getattr(batch, name) == getattr(untouched, name)).all())
        require(same, f"it changes {name} in place")


def extreme_gaps_stay_finite(subject: CorrectionSubject) -> None:
    """Trained tokens with a gap of 100 give finite weights and stats, in float32 as well."""
    import torch

    correction: Correction = subject.build()
    for dtype in (torch.float64, torch.float32):
        for gap in (100.0, -100.0):
            rows = [dataclasses.replace(row, rollout=row.old - gap) for row in _rows(12)]
            batch = _batch(rows, dtype)
            for name, column in _columns(_apply(correction, batch)).items():
                finite = np.isfinite(column[batch.mask_N.numpy()]).all()
                require(finite, f"a gap of {gap:+g} in {dtype}: {name} is not finite")


def single_precision_agrees_with_double(subject: CorrectionSubject) -> None:
    """The same float32 numbers, given as float32 and as float64."""
    import torch

    correction: Correction = subject.build()
    single = _batch(_rows(13), torch.float32)
    assert single.old_logprobs_N is not None
    double = dataclasses.replace(
        single,
        old_logprobs_N=single.old_logprobs_N.double(),
        rollout_logprobs_N=single.rollout_logprobs_N.double(),
    )
    want, result = _columns(_apply(correction, double)), _apply(correction, single)
    dtype = result.weights_N.dtype
    require(dtype == torch.float32, f"weights_N is {dtype} for torch.float32 inputs")
    mask_N = single.mask_N.numpy()
    for name, column in _columns(result).items():
        scale = max(1.0, float(np.abs(want[name][mask_N]).max()))
        got, exact = column[mask_N] / scale, want[name][mask_N] / scale
        require_close(got, exact, atol=_SINGLE, what=f"float32 against float64: {name}")


def reference_numbers_are_met(subject: CorrectionSubject) -> None:
    """Each of ``case.points``: a trajectory of one trained token."""
    if not subject.case.points:
        raise CheckSkipped("the case names no reference numbers")
    correction: Correction = subject.build()
    (row, *_) = random_rows(14, 1)
    for point in subject.case.points:
        one = dataclasses.replace(row, mask=np.arange(len(row.ids)) == 0)
        known = dataclasses.replace(one, old=row.rollout + point.log_gap)
        result = _apply(correction, _batch([known]))
        what = f"log gap {point.log_gap:g}"
        require_close(result.weights_N[:1], [point.weight], atol=1e-6, what=f"{what}: the weight")
        kept = bool(result.mask_N[0])
        require(kept == point.kept, f"{what}: the token is {'kept' if kept else 'left out'}")


class CorrectionSuite(Suite):
    """Tries a correction with ``CorrectionCase``s."""

    kind = "correction"
    checks = (
        says_its_level,
        weights_and_mask_have_one_entry_a_token,
        agreement_changes_nothing,
        it_never_unmasks,
        no_gradient_flows_through_it,
        masked_tokens_change_nothing,
        micro_batches_change_nothing,
        order_and_packing_change_nothing,
        padding_changes_nothing,
        a_trajectory_may_be_split_into_rows,
        it_depends_on_nothing_else,
        extreme_gaps_stay_finite,
        single_precision_agrees_with_double,
        reference_numbers_are_met,
    )


def _rows(seed: int) -> list[Row]:
    """Nine rows, each a trajectory, with gaps of every size."""
    rng = np.random.default_rng([24, seed])
    return [
        dataclasses.replace(
            row, rollout=row.old - rng.normal(0, _GAPS[index % len(_GAPS)], len(row.ids))
        )
        for index, row in enumerate(random_rows(100 + seed, 9))
    ]


def _batch(rows: Sequence[Row], dtype: torch.dtype | None = None) -> LossInputs:
    return leaves(rows, frozenset({"old_logprobs"}), dtype)


def _apply(correction: Correction, batch: LossInputs) -> CorrectionResult:
    old_N = batch.old_logprobs_N
    assert old_N is not None
    return correction(old_N, batch.rollout_logprobs_N, batch.mask_N, batch.trajectory_N)


def _columns(result: CorrectionResult) -> dict[str, np.ndarray]:
    """Everything a correction says about each token (N,), as float64."""
    columns = {"the weights": result.weights_N, "the mask": result.mask_N}
    columns |= {f"stat {name!r}": stat.values_N for name, stat in result.stats.items()}
    return {name: column.detach().double().numpy() for name, column in columns.items()}


def _by_trajectory(
    correction: Correction, batches: Sequence[Sequence[Row]]
) -> dict[tuple[int, str], np.ndarray]:
    """(trajectory, column) -> its tokens in the order met; of masked tokens nothing but zeros."""
    found: dict[tuple[int, str], np.ndarray] = {}
    for rows in batches:
        batch = _batch(rows)
        mask_N = batch.mask_N.numpy()
        for name, column in _columns(_apply(correction, batch)).items():
            ends = np.cumsum([len(row.ids) for row in rows])[:-1]
            pieces = np.split(np.where(mask_N, column, 0.0), ends)
            for row, piece in zip(rows, pieces, strict=True):
                key = (row.trajectory, name)
                found[key] = np.concatenate([found.get(key, np.zeros(0)), piece])
    return found


def _require_same(
    subject: CorrectionSubject, rows: list[Row], what: str, batches: list[list[Row]]
) -> None:
    """What is said about each token of ``rows`` in one batch is said in ``batches`` too."""
    correction: Correction = subject.build()
    whole, parts = _by_trajectory(correction, [rows]), _by_trajectory(correction, batches)
    for (trajectory, name), want in whole.items():
        got = parts[trajectory, name][: len(want)]
        require_close(got, want, atol=_EXACT, what=f"{what}: {name}")


def _finite(values_N: Tensor) -> bool:
    return bool(values_N.double().isfinite().all())


def _off(weights: Tensor) -> float:
    """The weight farthest from 1."""
    return float(weights[(weights - 1).abs().argmax()])
