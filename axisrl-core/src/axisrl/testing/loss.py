"""What a :class:`axisrl.protocols.Loss` promises. It does not test the trainer, which owns every
denominator: each token here has a weight of its own, drawn at random.

The batches come from :mod:`axisrl.testing.loss_batches`, in float64.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING

import numpy as np

from axisrl.protocols.loss import Loss, LossInputs
from axisrl.testing.cases import LossCase
from axisrl.testing.harness import CheckSkipped, Subject, Suite, require, require_close
from axisrl.testing.loss_batches import (
    Row,
    TinyPolicy,
    garbage_row,
    leaves,
    point_inputs,
    random_rows,
)
from axisrl.types import Aggregation

if TYPE_CHECKING:
    from torch import Tensor

LossSubject = Subject[LossCase]
_NEEDS = frozenset({"old_logprobs", "entropy", "values"})
_EXACT = 1e-9
_POISONS = (float("nan"), float("inf"), -float("inf"), 1e4, -1e4)


def declares_needs_and_aggregation(subject: LossSubject) -> None:
    """Of the words the trainer knows."""
    loss: Loss = subject.build()
    require(loss.needs <= _NEEDS, f"needs {sorted(loss.needs - _NEEDS)} is unknown to any backend")
    known = typing.get_args(Aggregation)
    require(loss.aggregation in known, f"aggregation {loss.aggregation!r} is none of {known}")
    if loss.aggregation == "sequence_mean_token_sum_norm":
        require(loss.sequence_norm > 0, f"sequence_norm is {loss.sequence_norm}")


def numerators_and_stats_have_one_entry_a_token(subject: LossSubject) -> None:
    """``per_token_N`` keeps shape and dtype; stats are detached and finite where trained."""
    loss: Loss = subject.build()
    batch = leaves(random_rows(0), loss.needs)
    result = loss(batch)
    require(
        result.per_token_N.shape == batch.logprobs_N.shape,
        f"per_token_N has shape {tuple(result.per_token_N.shape)}",
    )
    require(
        result.per_token_N.dtype == batch.logprobs_N.dtype,
        f"per_token_N is {result.per_token_N.dtype} for {batch.logprobs_N.dtype} inputs",
    )
    for name, stat in result.stats.items():
        values_N = stat.values_N
        require(
            values_N.shape == batch.logprobs_N.shape,
            f"stat {name!r} has shape {tuple(values_N.shape)}",
        )
        require(not values_N.requires_grad, f"stat {name!r} is not detached")
        finite = bool(values_N[batch.mask_N].double().isfinite().all())
        require(finite, f"stat {name!r} is not finite at a trained token")


def gradient_agrees_with_finite_differences(subject: LossSubject) -> None:
    """By every parameter of a tiny policy, in float64."""
    if subject.case.stop_gradient:
        raise CheckSkipped("the case says stop_gradient=True")
    loss: Loss = subject.build()
    rows, policy = random_rows(1), TinyPolicy()
    gradient = policy.gradient(loss, [rows])
    numeric = policy.finite_differences(loss, [rows])
    scale = max(1.0, float(np.abs(gradient).max()))
    require_close(gradient / scale, numeric / scale, atol=1e-6, what="the gradient")


def masked_tokens_change_nothing(subject: LossSubject) -> None:
    """NaN, infinities and +-1e4 at masked positions: value and gradient are exactly 0 there and
    what they were elsewhere."""
    loss: Loss = subject.build()
    rows = random_rows(2)
    clean = leaves(rows, loss.needs)
    value, gradients = _per_token(loss, clean)
    mask = clean.mask_N.numpy()
    for poison in _POISONS:
        batch = leaves([row.poisoned(poison) for row in rows], loss.needs)
        got, got_gradients = _per_token(loss, batch)
        what = f"with {poison} at masked positions"
        require(not got[~mask].any(), f"{what}: a masked value is {_worst(got[~mask])}, not 0")
        require_close(got[mask], value[mask], atol=_EXACT, what=f"{what}: a trained value")
        for name, gradient in got_gradients.items():
            masked = gradient[~mask]
            require(not masked.any(), f"{what}: a masked {name} gradient is {_worst(masked)}")
            want = gradients[name][mask]
            require_close(gradient[mask], want, atol=_EXACT, what=f"{what}: a {name} gradient")


def micro_batches_change_nothing(subject: LossSubject) -> None:
    """One batch, two, or one a trajectory: same total, same gradient."""
    rows = random_rows(3)
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    _require_same(subject, rows, "two micro-batches", halves)
    _require_same(subject, rows, "a micro-batch a trajectory", [[row] for row in rows])


def order_and_packing_change_nothing(subject: LossSubject) -> None:
    """Rows reversed, and rows dealt out over micro-batches: same total, same gradient."""
    rows = random_rows(4)
    _require_same(subject, rows, "the reverse order", [rows[::-1]])
    _require_same(subject, rows, "another packing", [rows[0::3], rows[1::3], rows[2::3]])


def padding_changes_nothing(subject: LossSubject) -> None:
    """Masked rows and masked tails of garbage: same total, same gradient."""
    rows = random_rows(5)
    _require_same(subject, rows, "padded rows", [[row.padded(3) for row in rows]])
    extra = [garbage_row(4), *rows, garbage_row(1)]
    _require_same(subject, rows, "wholly masked rows beside", [extra])


def a_trajectory_may_be_split_into_rows(subject: LossSubject) -> None:
    """Two rows with one trajectory number, not side by side, count as the one they are."""
    rows = random_rows(6)
    firsts, seconds = zip(*(row.split() for row in rows), strict=True)
    _require_same(subject, rows, "trajectories of two rows", [[*firsts, *seconds]])


def on_policy_the_ratio_is_one(subject: LossSubject) -> None:
    """With equal log-probabilities the gradient of each trained token is minus its advantage."""
    if not subject.case.policy_gradient:
        raise CheckSkipped("the case says policy_gradient=False")
    loss: Loss = subject.build()
    rows = [row.on_policy() for row in random_rows(7)]
    batch = leaves(rows, loss.needs)
    _, gradients = _per_token(loss, batch)
    mask = batch.mask_N.numpy()
    want = -batch.advantages_N.numpy()[mask]
    require_close(gradients["logprobs"][mask], want, atol=1e-8, what="the on-policy gradient")


def nothing_trained_is_exactly_zero(subject: LossSubject) -> None:
    """All positions masked, and no positions at all: value and gradient 0, no NaN."""
    loss: Loss = subject.build()
    masked = [row.poisoned(float("nan")) for row in (garbage_row(3), garbage_row(2))]
    for what, rows in (("all masked", masked), ("an empty batch", [])):
        value, gradients = _per_token(loss, leaves(rows, loss.needs))
        require(not value.any(), f"{what}: the loss is {_worst(value)}, not 0")
        for name, gradient in gradients.items():
            require(not gradient.any(), f"{what}: a {name} gradient is {_worst(gradient)}")


def extreme_ratios_stay_finite(subject: LossSubject) -> None:
    """Trained tokens whose log-probability moved by 100 give finite values and gradients, in
    float32 as well."""
    import torch

    loss: Loss = subject.build()
    for dtype in (torch.float64, torch.float32):
        for shift in (100.0, -100.0):
            batch = leaves([row.shifted(shift) for row in random_rows(8)], loss.needs, dtype)
            value, gradients = _per_token(loss, batch)
            what = f"log-ratio {shift:+g} in {dtype}"
            require(np.isfinite(value).all(), f"{what}: the loss is {_worst(value)}")
            for name, gradient in gradients.items():
                require(np.isfinite(gradient).all(), f"{what}: a {name} gradient is not finite")


def reference_numbers_are_met(subject: LossSubject) -> None:
    """Each of ``case.points``."""
    if not subject.case.points:
        raise CheckSkipped("the case names no reference numbers")
    loss: Loss = subject.build()
    for point in subject.case.points:
        value, gradients = _per_token(loss, point_inputs(point, loss.needs))
        what = f"log-ratio {point.log_ratio:g}, advantage {point.advantage:g}"
        require_close(value, [point.loss], atol=1e-6, what=f"{what}: the loss")
        if point.gradient is not None:
            got = gradients["logprobs"]
            require_close(got, [point.gradient], atol=1e-6, what=f"{what}: the gradient")


class LossSuite(Suite):
    """Tries a loss with ``LossCase``s."""

    kind = "loss"
    checks = (
        declares_needs_and_aggregation,
        numerators_and_stats_have_one_entry_a_token,
        gradient_agrees_with_finite_differences,
        masked_tokens_change_nothing,
        micro_batches_change_nothing,
        order_and_packing_change_nothing,
        padding_changes_nothing,
        a_trajectory_may_be_split_into_rows,
        on_policy_the_ratio_is_one,
        nothing_trained_is_exactly_zero,
        extreme_ratios_stay_finite,
        reference_numbers_are_met,
    )


def _per_token(loss: Loss, batch: LossInputs) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Numerators (N,) and the gradient of their sum by each input that carries one."""
    import torch

    result = loss(batch)
    sources: dict[str, Tensor | None] = {
        "logprobs": batch.logprobs_N,
        "entropy": batch.entropy_N,
        "values": batch.values_N,
    }
    given = {name: leaf for name, leaf in sources.items() if leaf is not None}
    total = result.per_token_N.sum()
    found: tuple[Tensor | None, ...] = (None,) * len(given)
    if total.requires_grad:
        found = torch.autograd.grad(total, list(given.values()), allow_unused=True)
    gradients = {
        name: (torch.zeros_like(leaf) if gradient is None else gradient).numpy()
        for (name, leaf), gradient in zip(given.items(), found, strict=True)
    }
    return result.per_token_N.detach().numpy(), gradients


def _require_same(
    subject: LossSubject, rows: list[Row], what: str, batches: list[list[Row]]
) -> None:
    """Total and gradient over ``batches`` are those of ``rows`` in one batch."""
    loss: Loss = subject.build()
    policy = TinyPolicy()
    whole, parts = policy.value(loss, [rows]), policy.value(loss, batches)
    require_close(parts, whole, atol=_EXACT, what=f"{what}: the loss")
    gradient = policy.gradient(loss, batches)
    want = policy.gradient(loss, [rows])
    require_close(gradient, want, atol=_EXACT, what=f"{what}: the gradient")


def _worst(values: np.ndarray) -> float:
    """The largest entry in size, NaN above all; 0 of none."""
    if not values.size:
        return 0.0
    return float(values[int(np.argmax(np.where(np.isnan(values), np.inf, np.abs(values))))])
