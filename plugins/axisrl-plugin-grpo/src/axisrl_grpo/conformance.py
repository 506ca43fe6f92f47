"""Inputs with which the components of this plugin are tried (:mod:`axisrl.testing`)."""

from __future__ import annotations

import math

from axisrl.testing.cases import AdvantageCase, LossCase, LossPoint

_UP, _DOWN = math.log(1.5), math.log(0.5)
_CLIPPED = (
    LossPoint(log_ratio=0.0, advantage=2.0, loss=-2.0, gradient=-2.0),
    LossPoint(log_ratio=_UP, advantage=1.0, loss=-1.2, gradient=0.0),
    LossPoint(log_ratio=_DOWN, advantage=-1.0, loss=0.8, gradient=0.0),
    LossPoint(log_ratio=_DOWN, advantage=1.0, loss=-0.5, gradient=-0.5),
    LossPoint(log_ratio=_UP, advantage=-1.0, loss=1.5, gradient=1.5),
)

CASES = [
    AdvantageCase(use="grpo/group"),
    LossCase(use="grpo/grpo", points=_CLIPPED),
    LossCase(
        use="grpo/grpo",
        label="dual clip",
        options={"dual_clip": 3.0},
        points=(
            *_CLIPPED,
            LossPoint(log_ratio=math.log(4.0), advantage=-1.0, loss=3.0, gradient=0.0),
        ),
    ),
    LossCase(
        use="grpo/grpo",
        label="from rollout",
        options={"base": "rollout", "aggregation": "sequence_mean_token_mean"},
        points=_CLIPPED,
    ),
    LossCase(
        use="grpo/grpo",
        label="clip higher, fixed norm",
        options={
            "clip_high": 0.28,
            "aggregation": "sequence_mean_token_sum_norm",
            "sequence_norm": 64,
        },
        points=(LossPoint(log_ratio=_UP, advantage=1.0, loss=-1.28, gradient=0.0),),
    ),
]
