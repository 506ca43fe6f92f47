"""Each check of CorrectionSuite catches a correction that breaks its promise."""

import math

import pytest

torch = pytest.importorskip("torch", reason="corrections are torch")

from axisrl.ops.trajectory import trajectory_mean, trajectory_sum  # noqa: E402
from axisrl.protocols import CorrectionResult, LossStat  # noqa: E402
from axisrl.testing import CorrectionCase, CorrectionPoint, CorrectionSuite  # noqa: E402
from axisrl.testing import correction as checks  # noqa: E402

CASE = CorrectionCase(
    use="toy/capped",
    points=(
        CorrectionPoint(log_gap=0.0),
        CorrectionPoint(log_gap=math.log(10.0), weight=2.0),
        CorrectionPoint(log_gap=math.log(1e-6), weight=1e-6, kept=False),
    ),
)


def zeroed(values, mask):
    return torch.where(mask, values, torch.zeros_like(values))


class Good:
    """Weights tokens up to 2 and leaves out those that became all but impossible."""

    level = "token"

    def __init__(self, context):
        pass

    def gap(self, old, rollout, mask):
        return (zeroed(old, mask) - zeroed(rollout, mask)).detach()

    def weights(self, gap, mask, trajectory):
        return gap.exp().clamp(max=2.0)

    def kept(self, gap, mask, trajectory):
        return gap >= math.log(1e-4)

    def stats(self, weights, kept):
        return {"kept": LossStat(values_N=kept.to(weights.dtype))}

    def __call__(self, old_logprobs_N, rollout_logprobs_N, mask_N, trajectory_N):
        gap = self.gap(old_logprobs_N, rollout_logprobs_N, mask_N)
        weights = self.weights(gap, mask_N, trajectory_N)
        kept = self.kept(gap, mask_N, trajectory_N) & mask_N
        return CorrectionResult(weights_N=weights, mask_N=kept, stats=self.stats(weights, kept))


class NoLevel(Good):
    level = None


class CallsItselfToken(Good):
    """Its weights need the whole trajectory, and the packer is not told."""

    def weights(self, gap, mask, trajectory):
        return trajectory_sum(gap, mask, trajectory).exp().clamp(max=2.0)


class OneWeight(Good):
    def weights(self, gap, mask, trajectory):
        return super().weights(gap, mask, trajectory).mean()

    def stats(self, weights, kept):
        return {}


class SingleWeights(Good):
    def weights(self, gap, mask, trajectory):
        return super().weights(gap, mask, trajectory).float()


class DoubleWeights(Good):
    def weights(self, gap, mask, trajectory):
        return super().weights(gap, mask, trajectory).double()


class FloatMask(Good):
    def __call__(self, *columns):
        result = super().__call__(*columns)
        return CorrectionResult(weights_N=result.weights_N, mask_N=result.mask_N.double())


class NegativeWeights(Good):
    def weights(self, gap, mask, trajectory):
        return 1 + gap.clamp(max=1.0)


class ScalarStat(Good):
    def stats(self, weights, kept):
        return {"kept": LossStat(values_N=kept.double().mean())}


class NaNStat(Good):
    def stats(self, weights, kept):
        return {"log": LossStat(values_N=torch.where(kept, weights, -weights).log())}


class ShiftedWeights(Good):
    def weights(self, gap, mask, trajectory):
        return (gap + 0.01).exp().clamp(max=2.0)


class StrictBand(Good):
    """Agreement is not inside ``ratio < 1``."""

    def kept(self, gap, mask, trajectory):
        return gap < 0


class ForgetsTheMask(Good):
    def __call__(self, *columns):
        result = super().__call__(*columns)
        gap = self.gap(*columns[:3])
        return CorrectionResult(weights_N=result.weights_N, mask_N=self.kept(gap, None, None))


class TrustsNaN(Good):
    """``not (ratio < low)`` keeps what cannot be compared."""

    def __call__(self, old, rollout, mask, trajectory):
        result = super().__call__(old, rollout, mask, trajectory)
        kept = result.mask_N | (old - rollout).isnan()
        return CorrectionResult(weights_N=result.weights_N, mask_N=kept)


class Attached(Good):
    def gap(self, old, rollout, mask):
        return zeroed(old, mask) - zeroed(rollout, mask)

    def stats(self, weights, kept):
        return {}


class AttachedStat(Good):
    def __call__(self, old, rollout, mask, trajectory):
        result = super().__call__(old, rollout, mask, trajectory)
        stats = {"gap": LossStat(values_N=old - rollout)}
        return CorrectionResult(weights_N=result.weights_N, mask_N=result.mask_N, stats=stats)


class SubtractsBeforeTheMask(Good):
    """0 x NaN is NaN."""

    def gap(self, old, rollout, mask):
        return ((old - rollout) * mask).detach()


class PoisonedStat(Good):
    """A statistic over the masked positions too."""

    def __call__(self, old, rollout, mask, trajectory):
        result = super().__call__(old, rollout, mask, trajectory)
        worst = (old - rollout).detach().abs().max()
        stats = {"worst": LossStat(values_N=torch.full_like(old, float(worst)))}
        return CorrectionResult(weights_N=result.weights_N, mask_N=result.mask_N, stats=stats)


class NormalisesTheBatch(Good):
    """Weights with a mean of 1 in each micro-batch."""

    def weights(self, gap, mask, trajectory):
        weights = super().weights(gap, mask, trajectory)
        total = zeroed(weights, mask).sum()
        return weights * mask.sum() / total if total > 0 else weights


class DependsOnThePosition(Good):
    def weights(self, gap, mask, trajectory):
        order = torch.arange(len(gap), dtype=gap.dtype)
        return super().weights(gap * (1 + 0.01 * order), mask, trajectory)


class MeanBeforeTheMask(Good):
    """The mean over all positions, padding included."""

    level = "trajectory"

    def weights(self, gap, mask, trajectory):
        every = torch.ones_like(mask)
        return trajectory_mean(gap, every, trajectory).exp().clamp(max=2.0)


class MeanOfTheRow(Good):
    """Takes a run of equal trajectory numbers for a trajectory."""

    level = "trajectory"

    def weights(self, gap, mask, trajectory):
        changes = torch.ones_like(trajectory)
        changes[1:] = (trajectory[1:] != trajectory[:-1]).long()
        return trajectory_mean(gap, mask, changes.cumsum(0)).exp().clamp(max=2.0)


class Remembers(Good):
    """A running mean over the batches it has seen."""

    def __init__(self, context):
        self._seen = []

    def weights(self, gap, mask, trajectory):
        self._seen.append(float(gap.mean()))
        return super().weights(gap - sum(self._seen) / len(self._seen), mask, trajectory)


class WritesInPlace(Good):
    def gap(self, old, rollout, mask):
        gap = super().gap(old, rollout, mask)
        old.data.copy_(zeroed(old, mask))
        return gap


class NoCap(Good):
    def weights(self, gap, mask, trajectory):
        return gap.exp()


class CapsElsewhere(Good):
    def weights(self, gap, mask, trajectory):
        return gap.exp().clamp(max=3.0)


class NeverDrops(Good):
    def kept(self, gap, mask, trajectory):
        return mask


class RoundsInSingle(Good):
    """Fine in float64; too coarse in float32."""

    def gap(self, old, rollout, mask):
        gap = super().gap(old, rollout, mask)
        return gap if gap.dtype == torch.float64 else gap.bfloat16().float()


shape = checks.weights_and_mask_have_one_entry_a_token
BROKEN = [
    (checks.says_its_level, NoLevel, "level None is none of"),
    (checks.says_its_level, CallsItselfToken, "halves in two batches: the weights: off by"),
    (shape, OneWeight, r"weights_N has shape \(\)"),
    (shape, SingleWeights, "weights_N is torch.float32 for torch.float64"),
    (shape, FloatMask, "mask_N is torch.float64, not bool"),
    (shape, NegativeWeights, "weights_N holds -"),
    (shape, ScalarStat, r"stat 'kept' has shape \(\)"),
    (shape, NaNStat, "stat 'log' is not finite at a trained token"),
    (checks.agreement_changes_nothing, ShiftedWeights, r"a weight of agreement is 1\.01005, not 1"),
    (checks.agreement_changes_nothing, StrictBand, r"(\d+) of \1 tokens in agreement are left out"),
    (checks.it_never_unmasks, ForgetsTheMask, "masked tokens that hold 0.0 come back trained"),
    (checks.it_never_unmasks, TrustsNaN, "masked tokens that hold nan come back trained"),
    (checks.no_gradient_flows_through_it, Attached, "weights_N carries a gradient"),
    (checks.no_gradient_flows_through_it, AttachedStat, "stat 'gap' is not detached"),
    (checks.masked_tokens_change_nothing, SubtractsBeforeTheMask, "a weight is not finite"),
    (checks.masked_tokens_change_nothing, PoisonedStat, "with nan at masked .* stat 'worst'"),
    (checks.micro_batches_change_nothing, NormalisesTheBatch, "two micro-batches: the weights"),
    (checks.order_and_packing_change_nothing, DependsOnThePosition, "the reverse order: the w"),
    (checks.order_and_packing_change_nothing, NormalisesTheBatch, "another packing: the weights"),
    (checks.padding_changes_nothing, MeanBeforeTheMask, "padded rows: the weights: off by"),
    (checks.a_trajectory_may_be_split_into_rows, MeanOfTheRow, "of two rows: the weights: off"),
    (checks.it_depends_on_nothing_else, Remembers, "after another batch: the weights: off by"),
    (checks.it_depends_on_nothing_else, WritesInPlace, "it changes old_logprobs_N in place"),
    (checks.extreme_gaps_stay_finite, NoCap, r"a gap of \+100 in torch.float32: the weights"),
    (checks.single_precision_agrees_with_double, RoundsInSingle, "the weights: off by"),
    (checks.single_precision_agrees_with_double, DoubleWeights, "weights_N is torch.float64"),
    (checks.reference_numbers_are_met, CapsElsewhere, r"log gap 2\.30259: the weight: off by 1,"),
    (checks.reference_numbers_are_met, NeverDrops, r"log gap -13\.8155: the token is kept"),
]


def test_a_good_correction_passes_every_check(trial):
    trial.passes(CorrectionSuite, CASE, Good)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_correction_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


def test_every_check_catches_something():
    assert {check for check, _, _ in BROKEN} == set(CorrectionSuite.checks)


def test_a_correction_by_trajectory_says_so_and_passes(trial):
    class ByTrajectory(CallsItselfToken):
        level = "trajectory"

    trial.passes(CorrectionSuite, CASE, ByTrajectory)


def test_a_case_without_reference_numbers_skips_them(trial):
    case = CorrectionCase(use="toy/capped")
    trial.passes(CorrectionSuite, case, Good, skips=[checks.reference_numbers_are_met])
