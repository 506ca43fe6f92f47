from pathlib import Path

import pytest
import torch

from axisrl.config.losses import ClippedRatioLossConfig
from axisrl.ops.ratio_loss import ClippedRatioLoss
from axisrl.protocols import LossInputs
from axisrl.types import BuildContext


def make(**options):
    return ClippedRatioLoss(ClippedRatioLossConfig(**options), BuildContext(run_dir=Path("unused")))


def batch(current, advantages, *, old=None, rollout=None, mask=None):
    logprobs = torch.tensor(current, requires_grad=True)
    return LossInputs(
        logprobs_N=logprobs,
        mask_N=torch.tensor(mask or [True] * len(current)),
        advantages_N=torch.tensor(advantages),
        rollout_logprobs_N=logprobs.detach() if rollout is None else torch.tensor(rollout),
        trajectory_N=torch.zeros(len(current), dtype=torch.int64),
        old_logprobs_N=None if old is None else torch.tensor(old),
    )


def test_it_says_what_it_was_configured_to_be():
    loss = make(aggregation="sequence_mean_token_sum_norm", sequence_norm=64)
    assert (loss.level, loss.aggregation, loss.sequence_norm) == (
        "token",
        "sequence_mean_token_sum_norm",
        64,
    )
    assert loss.needs == {"old_logprobs"}
    assert make(base="rollout").needs == frozenset()


def test_the_ratio_is_measured_from_the_configured_base():
    inputs = batch([-1.0], [1.0], old=[-1.0], rollout=[-1.5])
    assert make()(inputs).stats["ratio"].values_N.item() == 1.0
    assert make(base="rollout")(inputs).stats["ratio"].values_N.item() == pytest.approx(
        1.6487, 1e-4
    )


def test_the_first_update_of_a_window_has_ratio_exactly_one_and_ppo_kl_zero():
    inputs = batch([-0.3, -7.1, -19.0], [1.0, -2.0, 0.5], old=[-0.3, -7.1, -19.0])
    result = make()(inputs)
    assert result.stats["ratio"].values_N.tolist() == [1.0] * 3
    assert result.stats["ppo_kl"].values_N.tolist() == [0.0] * 3
    assert result.per_token_N.tolist() == [-1.0, 2.0, -0.5]


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), 1e4, -1e4])
def test_a_masked_position_loses_exactly_nothing_whatever_it_holds(poison):
    inputs = batch(
        [-1.0, poison],
        [1.0, poison],
        old=[-1.0, -poison],
        rollout=[-1.0, poison],
        mask=[True, False],
    )
    result = make(dual_clip=3.0)(inputs)
    result.per_token_N.sum().backward()
    assert result.per_token_N.tolist() == [-1.0, 0.0]
    assert inputs.logprobs_N.grad.tolist() == [-1.0, 0.0]
    assert all(stat.values_N.isfinite().all() for stat in result.stats.values())
