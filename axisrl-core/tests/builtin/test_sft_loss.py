from pathlib import Path

import torch

from axisrl.builtin.sft_loss import SftLoss
from axisrl.config.losses import LossConfig
from axisrl.protocols import LossInputs
from axisrl.types import BuildContext

NAN = float("nan")


def test_every_trained_token_loses_its_negative_log_likelihood_and_nothing_else_is_read():
    logprobs = torch.tensor([-1.0, NAN, -3.0], requires_grad=True)
    batch = LossInputs(
        logprobs_N=logprobs,
        mask_N=torch.tensor([True, False, True]),
        advantages_N=torch.full((3,), NAN),
        rollout_logprobs_N=torch.full((3,), NAN),
        trajectory_N=torch.zeros(3, dtype=torch.int64),
    )
    loss = SftLoss(LossConfig(), BuildContext(run_dir=Path()))(batch).per_token_N
    loss.sum().backward()
    assert loss.tolist() == [1.0, 0.0, 3.0]
    assert logprobs.grad.tolist() == [-1.0, 0.0, -1.0]


def test_it_needs_no_further_pass():
    assert SftLoss(LossConfig(), BuildContext(run_dir=Path())).needs == frozenset()
