"""LossSuite tries a value loss on values, old values and returns, and catches what is wrong there.

Everything that a value loss shares with any other is in test_loss.py.
"""

import pytest

torch = pytest.importorskip("torch", reason="losses are torch")

from axisrl.plugins import LossComponent  # noqa: E402
from axisrl.protocols import LossResult, LossStat  # noqa: E402
from axisrl.testing import LossCase, LossSuite  # noqa: E402
from axisrl.testing import loss as checks  # noqa: E402

CASE = LossCase(use="toy/values")
POLICY = LossComponent(name="clip", target="toy:Clip")
CRITIC = LossComponent(name="critic", target="toy:Critic", trains="value")


def zeroed(values, mask):
    return torch.where(mask, values, torch.zeros_like(values))


class Critic:
    """Squared error to the return, clipped around the old value."""

    needs = frozenset({"values"})
    level = "token"
    aggregation = "token_mean"
    sequence_norm = 1

    def __init__(self, context):
        pass

    def __call__(self, batch):
        per_token = zeroed(self.per_token(batch), batch.mask_N)
        return LossResult(per_token_N=per_token, stats=self.stats(batch))

    def stats(self, batch):
        return {"value": LossStat(values_N=zeroed(batch.values_N, batch.mask_N).detach())}

    def columns(self, batch):
        columns = (batch.values_N, batch.old_values_N, batch.returns_N)
        return [zeroed(column, batch.mask_N) for column in columns]

    def per_token(self, batch):
        values, old, returns = self.columns(batch)
        near = old + (values - old).clamp(-0.2, 0.2)
        return torch.maximum((values - returns) ** 2, (near - returns) ** 2)


class CriticThatReadsLogprobs(Critic):
    """Weighs tokens by how likely they are."""

    def per_token(self, batch):
        return super().per_token(batch) * self.log_probability(batch).exp()

    def log_probability(self, batch):
        return zeroed(batch.logprobs_N, batch.mask_N)


class CriticOfMicroBatches(Critic):
    def __call__(self, batch):
        result = super().__call__(batch)
        return LossResult(per_token_N=result.per_token_N / batch.mask_N.sum().clamp(min=1))


class CriticThatWhitensReturns(Critic):
    def columns(self, batch):
        values, old, returns = super().columns(batch)
        kept = returns[batch.mask_N]
        return [values, old, returns - kept.mean() if len(kept) else returns]


class CriticThatMultipliesByTheMask(Critic):
    def columns(self, batch):
        columns = (batch.values_N, batch.old_values_N, batch.returns_N)
        return [column * batch.mask_N for column in columns]


class CriticWithoutGradient(Critic):
    def columns(self, batch):
        values, old, returns = super().columns(batch)
        return [values.detach() + 0 * values, old, returns]


BROKEN = [
    (
        checks.numerators_and_stats_have_one_entry_a_token,
        CriticThatReadsLogprobs,
        "a trained value is nan; logprobs_N is NaN for a value model",
    ),
    (checks.gradient_agrees_with_finite_differences, CriticWithoutGradient, "nothing would be"),
    (checks.masked_tokens_change_nothing, CriticThatMultipliesByTheMask, "masked values gradient"),
    (checks.micro_batches_change_nothing, CriticOfMicroBatches, "two micro-batches: the loss"),
    (checks.micro_batches_change_nothing, CriticThatWhitensReturns, "two micro-batches: the loss"),
]
MEASURED = [each for each in BROKEN if each[1] is not CriticWithoutGradient]


def test_a_value_loss_passes_without_the_policy_check(trial):
    skips = [
        checks.ranks_change_nothing,
        checks.on_policy_the_ratio_is_one,
        checks.reference_numbers_are_met,
    ]
    trial.passes(LossSuite, CASE, Critic, CRITIC, skips=skips)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_value_loss_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


@pytest.mark.parametrize(("check", "make", "told"), MEASURED)
def test_what_broke_is_told_with_by_how_much(trial, check, make, told):
    trial.fails(check, CASE, make, r"(off by|is) (nan|-?inf|-?\d[\d.e+-]*)\b")


def test_a_value_loss_described_as_one_of_the_policy_is_caught(trial):
    told = "it trains the value; its descriptor says policy"
    trial.fails(checks.says_what_its_descriptor_says, CASE, Critic, told, POLICY)
