import math

import pytest
import torch

from axisrl.config.schema import EntropyConfig, KlConfig
from axisrl.ops.objective import Objective
from axisrl.protocols import CorrectionResult, LossInputs, LossResult, LossStat

NAN = float("nan")


class Pull:
    """-A lp."""

    needs = frozenset()
    level = "token"
    aggregation = "token_mean"
    sequence_norm = 0

    def __call__(self, batch):
        loss = torch.where(batch.mask_N, -batch.advantages_N * batch.logprobs_N, 0.0)
        return LossResult(per_token_N=loss, stats={"own": LossStat(values_N=loss.detach())})


class Fixed:
    """Weights and a mask that were decided beforehand."""

    def __init__(self, weights, mask, level="token"):
        self.weights, self.mask, self.level = torch.tensor(weights), torch.tensor(mask), level

    def __call__(self, old, rollout, mask, trajectory):
        assert not old.requires_grad
        kept = LossStat(values_N=self.mask.float())
        return CorrectionResult(weights_N=self.weights, mask_N=self.mask, stats={"kept": kept})


def objective(corrections=(), kl=None, entropy=None):
    named = [(f"c{at}", one) for at, one in enumerate(corrections)]
    return Objective(Pull(), named, kl or KlConfig(), entropy or EntropyConfig())


def batch(lp=(-1.0, -2.0, -3.0), mask=(True, True, True), **columns):
    """Advantages 1; every base is the current log-probability unless it is given."""
    logprobs = torch.tensor(lp, requires_grad=True)
    given = {name: torch.tensor(values) for name, values in columns.items()}
    return LossInputs(
        logprobs_N=logprobs,
        mask_N=torch.tensor(mask),
        advantages_N=torch.ones(len(lp)),
        rollout_logprobs_N=given.pop("rollout_logprobs_N", logprobs.detach()),
        trajectory_N=torch.zeros(len(lp), dtype=torch.int64),
        **given,
    )


def run(loss, inputs):
    result = loss(inputs)
    (gradient,) = torch.autograd.grad(result.per_token_N.sum(), inputs.logprobs_N)
    return result, gradient


def test_a_bare_objective_is_its_policy_loss_and_needs_nothing_more():
    loss = objective()
    result, gradient = run(loss, batch())
    assert loss.needs == frozenset()
    assert result.per_token_N.tolist() == [1.0, 2.0, 3.0]
    assert gradient.tolist() == [-1.0, -1.0, -1.0]
    assert set(result.stats) == {"own"}


@pytest.mark.parametrize(
    ("kl", "needs"),
    [
        (KlConfig(coef=0.0), set()),
        (KlConfig(coef=0.1), {"reference_logprobs"}),
        (KlConfig(coef=0.1, base="old"), {"old_logprobs"}),
        (KlConfig(coef=0.1, base="rollout"), set()),
    ],
)
def test_a_penalty_needs_its_base_and_nothing_when_its_factor_is_zero(kl, needs):
    assert objective(kl=kl).needs == needs


def test_entropy_is_needed_for_a_bonus_or_a_target_alone():
    assert objective(entropy=EntropyConfig()).needs == frozenset()
    assert objective(entropy=EntropyConfig(coef=0.01)).needs == {"entropy"}
    assert objective(entropy=EntropyConfig(target=0.5)).needs == {"entropy"}


def test_corrections_need_old_logprobs_and_make_the_level_theirs():
    assert objective([Fixed([1.0], [True])]).needs == {"old_logprobs"}
    assert objective([Fixed([1.0], [True])]).level == "token"
    assert objective([Fixed([1.0], [True], "trajectory")]).level == "trajectory"


def test_corrections_multiply_their_weights_and_keep_what_all_keep():
    first = Fixed([2.0, 0.5, 1.0], [True, True, False])
    second = Fixed([3.0, 1.0, 9.0], [True, False, True])
    inputs = batch(old_logprobs_N=[-1.0, -2.0, -3.0])
    result, gradient = run(objective([first, second]), inputs)
    assert result.per_token_N.tolist() == [6.0, 0.0, 0.0]
    assert gradient.tolist() == [-6.0, 0.0, 0.0]
    assert result.stats["kept"].values_N.tolist() == [1.0, 0.0, 0.0]
    assert result.stats["c0/kept"].values_N.tolist() == [1.0, 1.0, 0.0]


def test_a_correction_does_not_touch_the_penalty_or_the_bonus():
    drop = Fixed([0.0, 0.0, 0.0], [False, False, False])
    loss = objective([drop], KlConfig(coef=1.0, estimator="k2"), EntropyConfig(coef=0.5))
    inputs = batch(
        old_logprobs_N=[-1.0, -2.0, -3.0],
        reference_logprobs_N=[-2.0, -2.0, -1.0],
        entropy_N=[1.0, 2.0, 0.0],
    )
    result, gradient = run(loss, inputs)
    assert result.per_token_N.tolist() == [0.5 - 0.5, -1.0, 2.0]
    assert gradient.tolist() == [1.0, 0.0, -2.0]


@pytest.mark.parametrize(
    ("estimator", "value", "slope"),
    [("k1", 0.5, 1.0), ("k2", 0.125, 0.5), ("k3", math.exp(-0.5) - 0.5, 1 - math.exp(-0.5))],
)
@pytest.mark.parametrize("base", ["reference", "old", "rollout"])
def test_the_penalty_is_the_estimator_of_its_base(estimator, value, slope, base):
    columns = {f"{name}_logprobs_N": [-9.0] for name in ("reference", "old", "rollout")}
    columns[f"{base}_logprobs_N"] = [-1.5]
    loss = objective(kl=KlConfig(coef=2.0, estimator=estimator, base=base))
    result, gradient = run(loss, batch((-1.0,), (True,), **columns))
    assert result.per_token_N.item() == pytest.approx(1.0 + 2.0 * value)
    assert gradient.item() == pytest.approx(-1.0 + 2.0 * slope)
    assert result.stats["kl"].values_N.item() == pytest.approx(value)


def test_the_bonus_follows_its_present_factor():
    loss = objective(entropy=EntropyConfig(target=1.0))
    inputs = batch((-1.0,), (True,), entropy_N=[3.0])
    assert run(loss, inputs)[0].per_token_N.item() == 1.0
    loss.entropy_coef = 0.5
    assert run(loss, inputs)[0].per_token_N.item() == pytest.approx(1.0 - 1.5)


def test_the_entropy_is_told_whether_or_not_a_bonus_is_paid():
    """Entropy control reads it, whatever the trainer is."""
    loss = objective(entropy=EntropyConfig(target=1.0))
    told = loss(batch(mask=(True, False, True), entropy_N=[3.0, NAN, 1.0])).stats["entropy"]
    assert (told.values_N.tolist(), told.reduce) == ([3.0, 0.0, 1.0], "mean")
    assert "entropy" not in objective()(batch()).stats


def test_all_positions_masked_gives_loss_zero_and_gradient_zero():
    loss = objective([Fixed([NAN], [False])], KlConfig(coef=1.0), EntropyConfig(coef=1.0))
    names = ("old_logprobs_N", "rollout_logprobs_N", "reference_logprobs_N", "entropy_N")
    result, gradient = run(loss, batch((NAN,), (False,), **{name: [NAN] for name in names}))
    assert result.per_token_N.tolist() == gradient.tolist() == [0.0]
    assert all(stat.values_N.isfinite().all() for stat in result.stats.values())


def test_nan_at_masked_positions_changes_nothing():
    """Pitfall 7, with every term of an objective."""
    loss = objective(
        [Fixed([1.0, NAN, 2.0], [True, True, True])],
        KlConfig(coef=1.0),
        EntropyConfig(coef=1.0),
    )
    inputs = batch(
        (-1.0, NAN, -3.0),
        (True, False, True),
        old_logprobs_N=[-1.0, NAN, -3.0],
        rollout_logprobs_N=[-1.0, NAN, -3.0],
        reference_logprobs_N=[-1.0, NAN, -3.0],
        entropy_N=[0.5, NAN, 0.5],
    )
    result, gradient = run(loss, inputs)
    assert result.per_token_N.tolist() == [0.5, 0.0, 5.5]
    assert gradient.tolist() == [-1.0, 0.0, -2.0]


def test_icepop_example_keeps_its_denominator():
    """Ratios [.25, 1, 10] in a band [.5, 5] with A = 1: one of three tokens is kept."""
    ratios = torch.tensor([0.25, 1.0, 10.0])
    mask = ((ratios >= 0.5) & (ratios <= 5)).tolist()

    class Ratio(Pull):
        def __call__(self, batch):
            ratio = (batch.logprobs_N - batch.old_logprobs_N).exp()
            return LossResult(per_token_N=-batch.advantages_N * ratio)

    loss = Objective(Ratio(), [("icepop", Fixed([1.0] * 3, mask))], KlConfig(), EntropyConfig())
    result, _ = run(loss, batch(old_logprobs_N=[-1.0, -2.0, -3.0]))
    assert (result.per_token_N / 3).sum().item() == pytest.approx(-1 / 3)
    assert result.stats["kept"].values_N.mean().item() == pytest.approx(1 / 3)
