"""The policy gradient with a constant weight, which the losses without PPO's maximum share.

It does not know where the weight comes from.

Formula, per trained token: ``L = -A sg(w) lp``; the gradient by lp is ``-A w``, or 0 where
``stopped``. Pinned by ``tests/test_policy_gradient.py``.

Shape suffix: ``N`` tokens of one packed batch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from axisrl.ops.masked import zero_masked
from axisrl.protocols import LossInputs


def policy_gradient(
    batch: LossInputs, weights_N: Tensor | None = None, stopped_N: Tensor | None = None
) -> Tensor:
    """Numerators (N,), exactly 0 where masked. ``weights_N`` of None is 1 everywhere, ``stopped_N``
    (bool) of None stops no token."""
    logprobs_N = zero_masked(batch.logprobs_N, batch.mask_N)
    if stopped_N is not None:
        logprobs_N = torch.where(stopped_N, logprobs_N.detach(), logprobs_N)
    loss_N = -zero_masked(batch.advantages_N, batch.mask_N) * logprobs_N
    return loss_N if weights_N is None else weights_N.detach() * loss_N
