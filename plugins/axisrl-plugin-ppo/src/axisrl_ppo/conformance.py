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
    AdvantageCase(use="ppo/gae"),
    AdvantageCase(
        use="ppo/gae",
        label="discounted, bootstrapped",
        options={"gamma": 0.99, "lam": 0.95, "bootstrap_truncated": True, "whiten": False},
    ),
    LossCase(use="ppo/ppo", points=_CLIPPED),
    LossCase(
        use="ppo/ppo",
        label="from rollout, dual clip",
        options={
            "base": "rollout",
            "dual_clip": 3.0,
            "aggregation": "sequence_mean_token_sum_norm",
            "sequence_norm": 64,
        },
        points=(
            *_CLIPPED,
            LossPoint(log_ratio=math.log(4.0), advantage=-1.0, loss=3.0, gradient=0.0),
        ),
    ),
    LossCase(use="ppo/value"),
    LossCase(use="ppo/value", label="no clip", options={"clip": None, "coef": 0.5}),
]
