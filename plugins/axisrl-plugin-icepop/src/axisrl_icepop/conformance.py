"""Inputs with which the components of this plugin are tried (:mod:`axisrl.testing`)."""

from __future__ import annotations

import math

from axisrl.testing.cases import CorrectionCase, CorrectionPoint

_AGREED = CorrectionPoint(log_gap=0.0)

CASES = [
    CorrectionCase(
        use="icepop/icepop",
        points=(
            _AGREED,
            CorrectionPoint(log_gap=math.log(0.25), kept=False),
            CorrectionPoint(log_gap=math.log(0.51)),
            CorrectionPoint(log_gap=math.log(4.9)),
            CorrectionPoint(log_gap=math.log(10.0), kept=False),
        ),
    ),
    CorrectionCase(
        use="icepop/icepop",
        label="narrow",
        options={"low": 0.9, "high": 1.1},
        points=(_AGREED, CorrectionPoint(log_gap=math.log(1.2), kept=False)),
    ),
    CorrectionCase(
        use="icepop/token-tis",
        points=(
            _AGREED,
            CorrectionPoint(log_gap=math.log(0.25), weight=0.25),
            CorrectionPoint(log_gap=math.log(1.5), weight=1.5),
            CorrectionPoint(log_gap=math.log(10.0), weight=2.0),
        ),
    ),
    CorrectionCase(
        use="icepop/sequence-mask",
        points=(
            _AGREED,
            CorrectionPoint(log_gap=0.0019),
            CorrectionPoint(log_gap=0.0021, kept=False),
            CorrectionPoint(log_gap=-0.0021, kept=False),
        ),
    ),
    CorrectionCase(
        use="icepop/sequence-tis",
        points=(
            _AGREED,
            CorrectionPoint(log_gap=math.log(0.25), weight=0.25),
            CorrectionPoint(log_gap=math.log(10.0), weight=2.0),
        ),
    ),
    CorrectionCase(
        use="icepop/sequence-tis",
        label="geometric",
        options={"geometric": True, "cap": 3.0},
        points=(_AGREED, CorrectionPoint(log_gap=math.log(10.0), weight=3.0)),
    ),
    CorrectionCase(
        use="icepop/veto",
        points=(
            _AGREED,
            CorrectionPoint(log_gap=math.log(1.1e-4)),
            CorrectionPoint(log_gap=math.log(0.9e-4), kept=False),
            CorrectionPoint(log_gap=math.log(1e4)),
        ),
    ),
    CorrectionCase(
        use="icepop/k3-filter",
        points=(
            _AGREED,
            CorrectionPoint(log_gap=0.13),
            CorrectionPoint(log_gap=0.15, kept=False),
            CorrectionPoint(log_gap=-0.15, kept=False),
        ),
    ),
    CorrectionCase(
        use="icepop/k3-filter",
        label="token",
        options={"level": "token", "threshold": 1.0},
        points=(
            _AGREED,
            CorrectionPoint(log_gap=1.0),
            CorrectionPoint(log_gap=-1.8),
            CorrectionPoint(log_gap=1.2, kept=False),
            CorrectionPoint(log_gap=-1.9, kept=False),
        ),
    ),
]
