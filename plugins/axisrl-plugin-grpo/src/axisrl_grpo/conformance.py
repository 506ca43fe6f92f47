"""Inputs with which the components of this plugin are tried (:mod:`axisrl.testing`).

A point has base log-probability 0, so its log-ratio is its log-probability: the losses of the form
``-A sg(w) lp`` are worth ``-A w`` times it.
"""

from __future__ import annotations

import math

from axisrl.testing.cases import AdvantageCase, Case, LossCase, LossPoint

_UP, _DOWN, _FAR = math.log(1.5), math.log(0.5), math.log(4.0)
_ON_POLICY = LossPoint(log_ratio=0.0, advantage=2.0, loss=0.0, gradient=-2.0)
_CLIPPED = (
    LossPoint(log_ratio=0.0, advantage=2.0, loss=-2.0, gradient=-2.0),
    LossPoint(log_ratio=_UP, advantage=1.0, loss=-1.2, gradient=0.0),
    LossPoint(log_ratio=_DOWN, advantage=-1.0, loss=0.8, gradient=0.0),
    LossPoint(log_ratio=_DOWN, advantage=1.0, loss=-0.5, gradient=-0.5),
    LossPoint(log_ratio=_UP, advantage=-1.0, loss=1.5, gradient=1.5),
)
_NARROW = {"clip_low": 0.2, "clip_high": 0.2}


def _weighted(log_ratio: float, advantage: float, weight: float, kept: bool = True) -> LossPoint:
    """The point of a loss ``-A sg(w) lp``, its gradient kept or stopped."""
    slope = -advantage * weight
    return LossPoint(
        log_ratio=log_ratio,
        advantage=advantage,
        loss=slope * log_ratio,
        gradient=slope if kept else 0.0,
    )


_ADVANTAGES: list[Case] = [
    AdvantageCase(use="grpo/group"),
    AdvantageCase(use="grpo/group", label="narrow", options={"eps": 1e-3, "clip": 2.0}),
    AdvantageCase(use="grpo/dr-grpo"),
    AdvantageCase(use="grpo/rloo"),
    AdvantageCase(use="grpo/reinforce-pp"),
    AdvantageCase(use="grpo/reinforce-pp-baseline"),
    AdvantageCase(use="grpo/turn"),
    AdvantageCase(use="grpo/turn", label="small share", options={"coef": 0.25}),
]

_GRPO: list[Case] = [
    LossCase(use="grpo/grpo", points=_CLIPPED),
    LossCase(
        use="grpo/grpo",
        label="dual clip",
        options={"dual_clip": 3.0},
        points=(
            *_CLIPPED,
            LossPoint(log_ratio=_FAR, advantage=-1.0, loss=3.0, gradient=0.0),
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

_GRPO2_POINTS = (
    _ON_POLICY,
    _weighted(_UP, 1.0, 1.2, kept=False),
    _weighted(_DOWN, 1.0, 0.5),
    _weighted(_UP, -1.0, 1.5),
    _weighted(_FAR, -1.0, 3.0),
    _weighted(_DOWN, -1.0, 0.8, kept=False),
)
_GRPO2: list[Case] = [
    LossCase(use="grpo/grpo2", stop_gradient=True, points=_GRPO2_POINTS),
    LossCase(
        use="grpo/grpo2",
        label="from rollout",
        options={"base": "rollout"},
        stop_gradient=True,
        points=_GRPO2_POINTS,
    ),
    LossCase(
        use="grpo/grpo2",
        label="other bounds",
        options={"clip_low": 0.6, "clip_high": 0.6, "soft_clip": 1.0},
        stop_gradient=True,
        points=(
            _weighted(_UP, 1.0, 1.5),
            _weighted(_DOWN, -1.0, 0.5),
            _weighted(_UP, -1.0, 1.0),
        ),
    ),
]

_GSPO: list[Case] = [
    LossCase(
        use="grpo/gspo",
        stop_gradient=True,
        points=(
            LossPoint(log_ratio=_UP, advantage=1.0, loss=-1.0004, gradient=0.0),
            LossPoint(log_ratio=_DOWN, advantage=-1.0, loss=0.9997, gradient=0.0),
        ),
    ),
    LossCase(use="grpo/gspo", label="wide", options=_NARROW, stop_gradient=True, points=_CLIPPED),
    LossCase(
        use="grpo/gspo",
        label="from rollout, token mean",
        options={**_NARROW, "base": "rollout", "aggregation": "token_mean"},
        stop_gradient=True,
        points=_CLIPPED,
    ),
]

_TOPR_POINTS = (
    _ON_POLICY,
    _weighted(_UP, 1.0, 1.0),
    _weighted(_DOWN, 1.0, 1.0),
    _weighted(_UP, -1.0, 1.0),
    _weighted(_DOWN, -1.0, 0.5),
)
_TOPR: list[Case] = [
    LossCase(use="grpo/topr", stop_gradient=True, points=_TOPR_POINTS),
    LossCase(
        use="grpo/topr",
        label="from rollout",
        options={"base": "rollout"},
        stop_gradient=True,
        points=_TOPR_POINTS,
    ),
]

_CISPO: list[Case] = [
    LossCase(
        use="grpo/cispo",
        stop_gradient=True,
        points=(_ON_POLICY, _weighted(_FAR, 1.0, 2.0), _weighted(-_FAR, 1.0, 0.25)),
    ),
    LossCase(
        use="grpo/cispo",
        label="narrow",
        options=_NARROW,
        stop_gradient=True,
        points=(_weighted(_UP, 1.0, 1.2), _weighted(_DOWN, -1.0, 0.8)),
    ),
    LossCase(
        use="grpo/cispo",
        label="from rollout",
        options={"base": "rollout", "clip_high": 0.28},
        stop_gradient=True,
        points=(_weighted(_UP, -1.0, 1.28),),
    ),
]

_KIMI: list[Case] = [
    LossCase(
        use="grpo/kimi2-5",
        stop_gradient=True,
        points=(
            _ON_POLICY,
            _weighted(_UP, 1.0, 1.5),
            _weighted(_FAR, 1.0, 2.0, kept=False),
            _weighted(-_FAR, -1.0, 0.5, kept=False),
        ),
    ),
    LossCase(
        use="grpo/kimi2-5",
        label="narrow",
        options=_NARROW,
        stop_gradient=True,
        points=(
            _weighted(_UP, -1.0, 1.2, kept=False),
            _weighted(_DOWN, 1.0, 0.8, kept=False),
            _weighted(math.log(1.2 + 0.5e-5), 1.0, 1.2),
        ),
    ),
]

_REINFORCE: list[Case] = [
    LossCase(
        use="grpo/reinforce", points=(_ON_POLICY, _weighted(_UP, 1.0, 1.0), _weighted(-3.0, 2.0, 1))
    ),
    LossCase(
        use="grpo/reinforce",
        label="sequence mean",
        options={"aggregation": "sequence_mean_token_mean"},
    ),
]

CASES: list[Case] = [
    *_ADVANTAGES,
    *_GRPO,
    *_GRPO2,
    *_GSPO,
    *_TOPR,
    *_CISPO,
    *_KIMI,
    *_REINFORCE,
]
