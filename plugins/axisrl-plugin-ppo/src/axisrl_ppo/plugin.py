"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable

from axisrl.plugins import AdvantageComponent, LossComponent, hookimpl


@hookimpl
def axisrl_advantages() -> Iterable[AdvantageComponent]:
    """Generalised advantage estimation."""
    return [
        AdvantageComponent(
            name="gae",
            target="axisrl_ppo.advantage:GaeAdvantage",
            config="axisrl_ppo.config:GaeConfig",
            summary="Generalised advantage estimation over trained tokens, from a value model",
            group_relative=False,
            needs_values=True,
        )
    ]


@hookimpl
def axisrl_losses() -> Iterable[LossComponent]:
    """One loss for the policy, one for the value model."""
    return [
        LossComponent(
            name="ppo",
            target="axisrl_ppo.losses.ppo:PpoLoss",
            config="axisrl_ppo.config:PpoLossConfig",
            summary="Clipped probability-ratio loss",
        ),
        LossComponent(
            name="value",
            target="axisrl_ppo.losses.value:ValueLoss",
            config="axisrl_ppo.config:ValueLossConfig",
            summary="Squared error to the return, clipped around the old value",
            trains="value",
        ),
    ]
