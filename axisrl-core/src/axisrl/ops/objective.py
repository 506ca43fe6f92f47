"""What the policy is trained on: its loss, corrected, plus a KL penalty, less an entropy bonus.

Formula, per trained token, with w and k the product of the corrections' weights and masks:
``L = k w L_policy + kl.coef KL(lp, base) - entropy_coef H``. Corrections touch the policy term
alone; every denominator keeps the original mask. Nothing that is not asked for is needed.
Pinned by ``tests/ops/test_objective.py``.

It knows no algorithm and no denominator. Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from axisrl.config.schema import EntropyConfig, KlConfig
from axisrl.ops.clip import mean_stat
from axisrl.ops.kl import kl_estimate
from axisrl.ops.masked import zero_masked
from axisrl.protocols import Correction, Level, Loss, LossInputs, LossResult, LossStat

_KL_NEEDS = {"old": {"old_logprobs"}, "reference": {"reference_logprobs"}, "rollout": set[str]()}


class Objective:
    """A :class:`axisrl.protocols.Loss` made of parts."""

    def __init__(
        self,
        policy: Loss,
        corrections: Sequence[tuple[str, Correction]],
        kl: KlConfig,
        entropy: EntropyConfig,
    ) -> None:
        """``corrections``: pairs of the name its statistics carry and the correction."""
        self._policy = policy
        self._corrections = corrections
        self._kl = kl
        self.entropy_coef = entropy.coef
        """Factor of the bonus; whoever controls the entropy sets it before a step."""
        self.aggregation = policy.aggregation
        self.sequence_norm = policy.sequence_norm
        levels = [policy.level, *(correction.level for _, correction in corrections)]
        self.level: Level = "trajectory" if "trajectory" in levels else "token"
        needs = set(policy.needs)
        if corrections:
            needs |= {"old_logprobs"}
        if kl.coef:
            needs |= _KL_NEEDS[kl.base]
        if entropy.coef or entropy.target is not None:
            needs |= {"entropy"}
        self.needs = frozenset(needs)

    def __call__(self, batch: LossInputs) -> LossResult:
        """See :meth:`axisrl.protocols.Loss.__call__`."""
        result = self._policy(batch)
        loss_N, stats = result.per_token_N, dict(result.stats)
        if self._corrections:
            factor_N = self._factor(batch, stats)
            loss_N = loss_N * factor_N
        if self._kl.coef:
            kl_N = kl_estimate(
                batch.logprobs_N, self._kl_base(batch), batch.mask_N, self._kl.estimator
            )
            stats["kl"] = mean_stat(kl_N)
            loss_N = loss_N + self._kl.coef * kl_N
        if self.entropy_coef and batch.entropy_N is not None:
            loss_N = loss_N - self.entropy_coef * zero_masked(batch.entropy_N, batch.mask_N)
        if batch.entropy_N is not None:
            stats["entropy"] = mean_stat(zero_masked(batch.entropy_N, batch.mask_N))
        return LossResult(per_token_N=loss_N, stats=stats)

    def _factor(self, batch: LossInputs, stats: dict[str, LossStat]) -> Tensor:
        """What the policy term is multiplied with, (N,); 0 where a correction drops the token."""
        old_N = _given(batch.old_logprobs_N, "old_logprobs").detach()
        factor_N, kept_N = torch.ones_like(old_N), batch.mask_N
        for name, correction in self._corrections:
            result = correction(old_N, batch.rollout_logprobs_N, batch.mask_N, batch.trajectory_N)
            factor_N = factor_N * zero_masked(result.weights_N, batch.mask_N)
            kept_N = kept_N & result.mask_N
            stats |= {f"{name}/{told}": stat for told, stat in result.stats.items()}
        stats["kept"] = mean_stat(kept_N)
        return zero_masked(factor_N, kept_N)

    def _kl_base(self, batch: LossInputs) -> Tensor:
        if self._kl.base == "rollout":
            return batch.rollout_logprobs_N
        if self._kl.base == "old":
            return _given(batch.old_logprobs_N, "old_logprobs")
        return _given(batch.reference_logprobs_N, "reference_logprobs")


def _given(values_N: Tensor | None, name: str) -> Tensor:
    if values_N is None:
        raise ValueError(f"the objective needs {name}, and the batch has none")
    return values_N
