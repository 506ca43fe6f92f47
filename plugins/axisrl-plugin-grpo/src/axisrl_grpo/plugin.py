"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable

from axisrl.plugins import AdvantageComponent, LossComponent, hookimpl


@hookimpl
def axisrl_advantages() -> Iterable[AdvantageComponent]:
    """The group advantage."""
    return [
        AdvantageComponent(
            name="group",
            target="axisrl_grpo.advantage:GroupAdvantage",
            config="axisrl_grpo.config:GroupAdvantageConfig",
            summary="Reward against the group's mean, in units of its standard deviation",
            group_relative=True,
        )
    ]


@hookimpl
def axisrl_losses() -> Iterable[LossComponent]:
    """The GRPO loss."""
    return [
        LossComponent(
            name="grpo",
            target="axisrl_grpo.losses.grpo:GrpoLoss",
            config="axisrl_grpo.config:GrpoLossConfig",
            summary="Clipped probability-ratio loss with an optional dual clip",
        )
    ]
