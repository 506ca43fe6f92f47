"""What a :class:`axisrl.protocols.Loss` promises. It does not test the trainer, which owns every
denominator: each token here has a weight of its own, drawn at random.

The batches come from :mod:`axisrl.testing.loss_batches`, in float64.
"""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING

import numpy as np

from axisrl.plugins.components import LossComponent
from axisrl.protocols.loss import Level, Loss, LossInputs
from axisrl.testing.cases import LossCase
from axisrl.testing.harness import CheckSkipped, Subject, Suite, require, require_close
from axisrl.testing.loss_batches import (
    HEAD,
    Row,
    TinyPolicy,
    garbage_row,
    leaves,
    point_inputs,
    random_rows,
)
from axisrl.testing.ranks import batches_of_ranks, job_of, sum_over_ranks
from axisrl.types import Aggregation

if TYPE_CHECKING:
    from torch import Tensor

LossSubject = Subject[LossCase]
_NEEDS = frozenset({"old_logprobs", "reference_logprobs", "entropy", "values"})
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


def declares_its_level(subject: LossSubject) -> None:
    """``token`` or ``trajectory``."""
    level = getattr(subject.build(), "level", None)
    known = typing.get_args(Level)
    require(level in known, f"level {level!r} is none of {known}")


def says_what_its_descriptor_says(subject: LossSubject) -> None:
    """``trains="value"`` needs "values" and ``trains="policy"`` does not; ``supervised`` reads
    log-probabilities alone."""
    said = subject.descriptor
    if not isinstance(said, LossComponent):
        raise CheckSkipped("it is tried without its descriptor")
    loss: Loss = subject.build()
    trains = "value" if "values" in loss.needs else "policy"
    require(
        said.trains == trains,
        f"it needs {sorted(loss.needs)}, so it trains the {trains}; its descriptor says "
        f"{said.trains}",
    )
    if said.supervised:
        rows = random_rows(10)
        want, _ = _per_token(loss, leaves(rows, loss.needs))
        got, _ = _per_token(loss, leaves([row.unsampled() for row in rows], loss.needs))
        require_close(got, want, atol=_EXACT, what="supervised, with NaN for what sampling gives")


def numerators_and_stats_have_one_entry_a_token(subject: LossSubject) -> None:
    """``per_token_N`` keeps shape and dtype; it and the stats, which are detached, are finite where
    trained."""
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
    trained = result.per_token_N.detach()[batch.mask_N].numpy()
    hint = "; logprobs_N is NaN for a value model" if "values" in loss.needs else ""
    require(np.isfinite(trained).all(), f"a trained value is {_worst(trained)}{hint}")
    for name, stat in result.stats.items():
        values_N = stat.values_N
        require(
            values_N.shape == batch.logprobs_N.shape,
            f"stat {name!r} has shape {tuple(values_N.shape)}",
        )
        require(not values_N.requires_grad, f"stat {name!r} is not detached")
        measured = values_N[batch.mask_N].double().numpy()
        finite = bool(np.isfinite(measured).all())
        require(finite, f"stat {name!r} is {_worst(measured)} at a trained token")


def gradient_agrees_with_finite_differences(subject: LossSubject) -> None:
    """By every parameter of a tiny model, in float64, and it is not 0: by the value head where
    values are trained."""
    loss: Loss = subject.build()
    rows, policy = random_rows(1), TinyPolicy()
    gradient = policy.gradient(loss, [rows])
    learns = gradient[HEAD] if "values" in loss.needs else gradient
    require(learns.any(), "the gradient is 0 by every parameter: nothing would be learnt")
    if subject.case.stop_gradient:
        raise CheckSkipped("the case says stop_gradient=True")
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
    """One batch, two, or one a trajectory: same total, same gradient. Where ``level`` is "token",
    the rows of a trajectory may lie in different ones."""
    loss: Loss = subject.build()
    rows = random_rows(3)
    halves = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
    _require_same(loss, rows, "two micro-batches", halves)
    _require_same(loss, rows, "a micro-batch a trajectory", [[row] for row in rows])
    if loss.level == "token":
        firsts, seconds = _halves(rows)
        what = "trajectories dealt out over two micro-batches (level is 'token')"
        _require_same(loss, rows, what, [firsts, seconds])


def order_and_packing_change_nothing(subject: LossSubject) -> None:
    """Rows reversed, and rows dealt out over micro-batches: same total, same gradient. Trajectories
    stay whole unless ``level`` is "token"."""
    loss: Loss = subject.build()
    rows = random_rows(4)
    _require_same(loss, rows, "the reverse order", [rows[::-1]])
    _require_same(loss, rows, "another packing", [rows[0::3], rows[1::3], rows[2::3]])
    if loss.level == "token":
        firsts, seconds = _halves(rows)
        mixed = [firsts[0::2] + seconds[1::2], seconds[0::2] + firsts[1::2]]
        _require_same(loss, rows, "another packing of half trajectories", mixed)


def ranks_change_nothing(subject: LossSubject) -> None:
    """Two processes joined by gloo, each with its batches: their losses and gradients sum to those
    of one process."""
    loss: Loss = subject.build()
    whole = loss.level == "trajectory"
    total = sum_over_ranks(job_of(subject, whole_trajectories=whole))
    batches = batches_of_ranks(whole_trajectories=whole)
    rows, policy = [row for rank in batches for part in rank for row in part], TinyPolicy()
    require_close(total[0], policy.value(loss, [rows]), atol=_EXACT, what="two ranks: the loss")
    want = policy.gradient(loss, [rows])
    require_close(total[1:], want, atol=_EXACT, what="two ranks: the gradient")


def padding_changes_nothing(subject: LossSubject) -> None:
    """Masked rows and masked tails of garbage: same total, same gradient."""
    loss: Loss = subject.build()
    rows = random_rows(5)
    _require_same(loss, rows, "padded rows", [[row.padded(3) for row in rows]])
    extra = [garbage_row(4), *rows, garbage_row(1)]
    _require_same(loss, rows, "wholly masked rows beside", [extra])


def a_trajectory_may_be_split_into_rows(subject: LossSubject) -> None:
    """Two rows with one trajectory number, not side by side, count as the one they are."""
    loss: Loss = subject.build()
    rows = random_rows(6)
    firsts, seconds = _halves(rows)
    _require_same(loss, rows, "trajectories of two rows", [firsts + seconds])


def on_policy_the_ratio_is_one(subject: LossSubject) -> None:
    """With equal log-probabilities the gradient of each trained token is minus its advantage."""
    if not subject.case.policy_gradient:
        raise CheckSkipped("the case says policy_gradient=False")
    loss: Loss = subject.build()
    if "values" in loss.needs:
        raise CheckSkipped("it trains a value model")
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
    """Trained tokens whose log-probability (or value) moved by 100 give finite values and
    gradients, in float32 as well."""
    import torch

    loss: Loss = subject.build()
    for dtype in (torch.float64, torch.float32):
        for shift in (100.0, -100.0):
            batch = leaves([row.shifted(shift) for row in random_rows(8)], loss.needs, dtype)
            value, gradients = _per_token(loss, batch)
            moved = "value" if "values" in loss.needs else "log-ratio"
            what = f"{moved} {shift:+g} in {dtype}"
            require(np.isfinite(value).all(), f"{what}: the loss is {_worst(value)}")
            for name, gradient in gradients.items():
                told = f"{what}: a {name} gradient is {_worst(gradient)}"
                require(np.isfinite(gradient).all(), told)


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
        declares_its_level,
        says_what_its_descriptor_says,
        numerators_and_stats_have_one_entry_a_token,
        gradient_agrees_with_finite_differences,
        masked_tokens_change_nothing,
        micro_batches_change_nothing,
        order_and_packing_change_nothing,
        ranks_change_nothing,
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


def _halves(rows: list[Row]) -> tuple[list[Row], list[Row]]:
    """The first and the second rows of the trajectories, each cut in two."""
    pairs = [row.split() for row in rows]
    return [first for first, _ in pairs], [second for _, second in pairs]


def _require_same(loss: Loss, rows: list[Row], what: str, batches: list[list[Row]]) -> None:
    """Total and gradient over ``batches`` are those of ``rows`` in one batch."""
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
