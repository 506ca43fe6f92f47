"""Each check of LossSuite catches a loss that breaks its promise.

Value losses are in test_value_loss.py, what is wrong on several ranks alone in test_ranks.py.
"""

import math

import pytest

torch = pytest.importorskip("torch", reason="losses are torch")

from axisrl.plugins import LossComponent  # noqa: E402
from axisrl.protocols import LossResult, LossStat  # noqa: E402
from axisrl.testing import LossCase, LossPoint, LossSuite  # noqa: E402
from axisrl.testing import loss as checks  # noqa: E402

CASE = LossCase(
    use="toy/clip",
    points=(LossPoint(log_ratio=math.log(1.5), advantage=1.0, loss=-1.2, gradient=0.0),),
)


HERE = (checks.ranks_change_nothing, checks.says_what_its_descriptor_says)
"""Skipped for a loss that is made here, without a plugin."""
NO_FORMULA = (
    checks.gradient_agrees_with_finite_differences,
    checks.reference_numbers_are_met,
)
POLICY = LossComponent(name="clip", target="toy:Clip")
CRITIC = LossComponent(name="critic", target="toy:Critic", trains="value")
TEXTS = LossComponent(name="texts", target="toy:Texts", supervised=True)


def zeroed(values, mask):
    return torch.where(mask, values, torch.zeros_like(values))


class Good:
    """PPO's clipped loss, measured from the old log-probabilities."""

    needs = frozenset({"old_logprobs"})
    level = "token"
    aggregation = "token_mean"
    sequence_norm = 1

    def __init__(self, context):
        pass

    def log_ratio(self, batch):
        gap = zeroed(batch.logprobs_N, batch.mask_N) - zeroed(batch.old_logprobs_N, batch.mask_N)
        return gap.clamp(-20, 20)

    def per_token(self, batch):
        ratio = self.log_ratio(batch).exp()
        advantages = zeroed(batch.advantages_N, batch.mask_N)
        return torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.8, 1.2))

    def stats(self, batch):
        return {"ratio": LossStat(values_N=self.log_ratio(batch).exp().detach())}

    def __call__(self, batch):
        per_token = zeroed(self.per_token(batch), batch.mask_N)
        return LossResult(per_token_N=per_token, stats=self.stats(batch))


class NeedsACrystalBall(Good):
    needs = frozenset({"old_logprobs", "future_logprobs"})


class MeanOfMeans(Good):
    aggregation = "mean_of_means"


class NormOfZero(Good):
    aggregation = "sequence_mean_token_sum_norm"
    sequence_norm = 0


class LevelOfTheBatch(Good):
    level = "batch"


class LearnsNothing(Good):
    def per_token(self, batch):
        return 0 * super().per_token(batch)


class SinglePrecision(Good):
    def __call__(self, batch):
        result = super().__call__(batch)
        return LossResult(per_token_N=result.per_token_N.float())


class AttachedStat(Good):
    def stats(self, batch):
        return {"ratio": LossStat(values_N=self.log_ratio(batch).exp())}


class ScalarStat(Good):
    def stats(self, batch):
        return {"ratio": LossStat(values_N=self.log_ratio(batch).exp().detach().mean())}


class DetachesTheClip(Good):
    """Value and gradient part company."""

    def per_token(self, batch):
        moving = batch.logprobs_N - batch.logprobs_N.detach()
        return super().per_token(batch).detach() + 0.1 * moving


class MultipliesByTheMask(Good):
    """0 x NaN is NaN."""

    def log_ratio(self, batch):
        return (batch.logprobs_N - batch.old_logprobs_N).clamp(-20, 20)

    def __call__(self, batch):
        per_token = -batch.advantages_N * self.log_ratio(batch).exp()
        return LossResult(per_token_N=per_token * batch.mask_N)


class MasksTooLate(Good):
    """The value is right; the gradient of what was left out is NaN."""

    def __call__(self, batch):
        ratio = (batch.logprobs_N - batch.old_logprobs_N).exp()
        per_token = zeroed(-batch.advantages_N * ratio, batch.mask_N)
        return LossResult(per_token_N=per_token)


class NeverMasks(Good):
    def __call__(self, batch):
        ratio = (batch.logprobs_N - batch.old_logprobs_N).clamp(-20, 20).exp()
        return LossResult(per_token_N=-batch.advantages_N * ratio)


class MeanOfTheMicroBatch(Good):
    """Each micro-batch by its own count of tokens: the most common mistake there is."""

    def __call__(self, batch):
        result = super().__call__(batch)
        return LossResult(per_token_N=result.per_token_N / batch.mask_N.sum().clamp(min=1))


class MeanBeforeTheMask(Good):
    """Divides by all positions, padding included."""

    def __call__(self, batch):
        result = super().__call__(batch)
        return LossResult(per_token_N=result.per_token_N / max(len(batch.mask_N), 1))


class WhitensTheBatch(Good):
    def per_token(self, batch):
        kept = batch.advantages_N[batch.mask_N]
        shift = kept.mean() if len(kept) else 0.0
        ratio = self.log_ratio(batch).exp()
        return -(zeroed(batch.advantages_N, batch.mask_N) - shift) * ratio


class DependsOnThePosition(Good):
    def per_token(self, batch):
        order = torch.arange(len(batch.mask_N), dtype=batch.logprobs_N.dtype)
        return super().per_token(batch) * (1 + 0.01 * order)


class MeanOfTheRow(Good):
    """Takes a run of equal trajectory numbers for a sequence."""

    def per_token(self, batch):
        per_token = super().per_token(batch)
        starts = torch.ones_like(batch.trajectory_N, dtype=torch.bool)
        starts[1:] = batch.trajectory_N[1:] != batch.trajectory_N[:-1]
        run = starts.long().cumsum(0) - 1 if len(starts) else batch.trajectory_N
        count = torch.zeros(len(run), dtype=per_token.dtype).index_add(
            0, run, batch.mask_N.to(per_token.dtype)
        )
        return per_token / count[run].clamp(min=1)


class HalfTheAdvantage(Good):
    def per_token(self, batch):
        return 0.5 * super().per_token(batch)


class NaNWithoutTokens(Good):
    def __call__(self, batch):
        result = super().__call__(batch)
        share = batch.mask_N.sum() / batch.mask_N.sum()
        return LossResult(per_token_N=result.per_token_N * share)


class NoClamp(Good):
    def log_ratio(self, batch):
        return zeroed(batch.logprobs_N, batch.mask_N) - zeroed(batch.old_logprobs_N, batch.mask_N)

    def per_token(self, batch):
        return -zeroed(batch.advantages_N, batch.mask_N) * self.log_ratio(batch).exp()


class ClipsElsewhere(Good):
    def per_token(self, batch):
        ratio = self.log_ratio(batch).exp()
        advantages = zeroed(batch.advantages_N, batch.mask_N)
        return torch.maximum(-advantages * ratio, -advantages * ratio.clamp(0.7, 1.3))


class Gspo(Good):
    level = "trajectory"

    def per_token(self, batch):
        gap = self.log_ratio(batch)
        zeros = torch.zeros(2000, dtype=gap.dtype)
        total = zeros.index_add(0, batch.trajectory_N, gap)
        count = zeros.index_add(0, batch.trajectory_N, batch.mask_N.to(gap.dtype))
        mean = (total / count.clamp(min=1))[batch.trajectory_N].detach()
        current = zeroed(batch.logprobs_N, batch.mask_N)
        ratio = (current - current.detach() + mean).clamp(max=10).exp()
        return -zeroed(batch.advantages_N, batch.mask_N) * ratio


class GspoOfTokens(Gspo):
    """Its rows would be dealt out over packed batches."""

    level = "token"


class Texts(Good):
    """Negative log-likelihood."""

    needs = frozenset()

    def stats(self, batch):
        return {}

    def per_token(self, batch):
        return -zeroed(batch.logprobs_N, batch.mask_N)


class TextsWithAdvantages(Texts):
    def per_token(self, batch):
        return super().per_token(batch) * zeroed(batch.advantages_N, batch.mask_N)


BROKEN = [
    (checks.declares_needs_and_aggregation, NeedsACrystalBall, "future_logprobs"),
    (checks.declares_needs_and_aggregation, MeanOfMeans, "aggregation 'mean_of_means'"),
    (checks.declares_needs_and_aggregation, NormOfZero, "sequence_norm is 0"),
    (checks.declares_its_level, LevelOfTheBatch, "level 'batch' is none of"),
    (checks.numerators_and_stats_have_one_entry_a_token, ScalarStat, "stat 'ratio' has shape"),
    (checks.numerators_and_stats_have_one_entry_a_token, AttachedStat, "is not detached"),
    (checks.numerators_and_stats_have_one_entry_a_token, SinglePrecision, "float32 for"),
    (checks.gradient_agrees_with_finite_differences, DetachesTheClip, "the gradient: off by"),
    (checks.gradient_agrees_with_finite_differences, LearnsNothing, "nothing would be learnt"),
    (checks.masked_tokens_change_nothing, MultipliesByTheMask, "a masked value is nan"),
    (checks.masked_tokens_change_nothing, MasksTooLate, "masked logprobs gradient is nan"),
    (checks.masked_tokens_change_nothing, NeverMasks, "with nan at masked positions: a masked"),
    (checks.micro_batches_change_nothing, MeanOfTheMicroBatch, "two micro-batches: the loss"),
    (checks.micro_batches_change_nothing, MeanBeforeTheMask, "two micro-batches: the loss"),
    (checks.micro_batches_change_nothing, WhitensTheBatch, "two micro-batches: the loss"),
    (checks.micro_batches_change_nothing, GspoOfTokens, r"dealt out .*\(level is 'token'\): the "),
    (checks.order_and_packing_change_nothing, DependsOnThePosition, "the reverse order"),
    (checks.order_and_packing_change_nothing, MeanOfTheMicroBatch, "another packing"),
    (checks.order_and_packing_change_nothing, GspoOfTokens, "packing of half trajectories"),
    (checks.padding_changes_nothing, MeanBeforeTheMask, "padded rows: the loss: off by"),
    (checks.a_trajectory_may_be_split_into_rows, MeanOfTheRow, "trajectories of two rows"),
    (checks.on_policy_the_ratio_is_one, HalfTheAdvantage, "on-policy gradient: off by"),
    (checks.nothing_trained_is_exactly_zero, NaNWithoutTokens, "all masked: the loss is nan"),
    (checks.extreme_ratios_stay_finite, NoClamp, r"log-ratio \+100 in torch.float32"),
    (checks.reference_numbers_are_met, ClipsElsewhere, r"log-ratio 0\.405.*the loss: off by 0\.1"),
]


MISDESCRIBED = [
    (Good, CRITIC, "it trains the policy; its descriptor says value"),
    (TextsWithAdvantages, TEXTS, "supervised, with NaN for what sampling gives: off by nan"),
]
MEASURED = [
    each
    for each in BROKEN
    if each[0] not in (checks.declares_needs_and_aggregation, checks.declares_its_level)
    and each[1] not in (ScalarStat, AttachedStat, SinglePrecision)
]


def test_a_good_loss_passes_every_check(trial):
    trial.passes(LossSuite, CASE, Good, skips=HERE)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_loss_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


@pytest.mark.parametrize(("check", "make", "told"), MEASURED)
def test_what_broke_is_told_with_by_how_much(trial, check, make, told):
    trial.fails(check, CASE, make, r"(off by|is) (nan|-?inf|-?\d[\d.e+-]*)\b")


@pytest.mark.parametrize(("make", "descriptor", "told"), MISDESCRIBED)
def test_a_loss_that_is_not_what_its_descriptor_says_is_caught(trial, make, descriptor, told):
    trial.fails(checks.says_what_its_descriptor_says, CASE, make, told, descriptor)


@pytest.mark.parametrize(("make", "descriptor"), [(Good, POLICY), (Texts, TEXTS)])
def test_a_loss_that_is_what_its_descriptor_says_passes(trial, make, descriptor):
    trial(checks.says_what_its_descriptor_says, CASE, make, descriptor)


def test_every_check_catches_something():
    elsewhere = set(HERE)
    assert {check for check, _, _ in BROKEN} | elsewhere == set(LossSuite.checks)


def test_a_mean_over_the_micro_batch_is_caught_by_every_check_of_the_denominator(trial):
    for check in (
        checks.micro_batches_change_nothing,
        checks.order_and_packing_change_nothing,
    ):
        trial.fails(check, CASE, MeanOfTheMicroBatch, "off by")


def test_a_loss_whose_gradient_survives_clipping_says_so_and_passes(trial):
    class Cispo(Good):
        def per_token(self, batch):
            ratio = self.log_ratio(batch).exp().clamp(0.8, 1.2).detach()
            advantages = zeroed(batch.advantages_N, batch.mask_N)
            return -advantages * ratio * zeroed(batch.logprobs_N, batch.mask_N)

    trial.fails(
        checks.gradient_agrees_with_finite_differences, LossCase(use="toy/cispo"), Cispo, "off by"
    )
    case = LossCase(use="toy/cispo", stop_gradient=True)
    trial.passes(LossSuite, case, Cispo, skips=(*HERE, *NO_FORMULA))


def test_a_trajectory_level_loss_passes_since_its_rows_stay_together(trial):
    case = LossCase(use="toy/gspo", stop_gradient=True)
    trial.passes(LossSuite, case, Gspo, skips=(*HERE, *NO_FORMULA))


def test_a_loss_gets_reference_log_probabilities_when_it_needs_them(trial):
    class Anchored(Good):
        needs = frozenset({"reference_logprobs"})

        def log_ratio(self, batch):
            base = zeroed(batch.reference_logprobs_N, batch.mask_N)
            return (zeroed(batch.logprobs_N, batch.mask_N) - base).clamp(-20, 20)

    skips = [*HERE, checks.reference_numbers_are_met]
    case = LossCase(use="toy/anchored", policy_gradient=False)
    trial.passes(LossSuite, case, Anchored, skips=[*skips, checks.on_policy_the_ratio_is_one])
