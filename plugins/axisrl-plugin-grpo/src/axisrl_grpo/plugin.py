"""What this plugin offers. Imports nothing but :mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from axisrl.plugins import (
    AdvantageComponent,
    ConfigProblem,
    LossComponent,
    RecipeComponent,
    hookimpl,
)

if TYPE_CHECKING:
    from axisrl.config.schema import RunConfig

_COUNT_MISMATCH = ("icepop/token-tis", "icepop/sequence-tis")


@hookimpl
def axisrl_advantages() -> Iterable[AdvantageComponent]:
    """How much better a rollout did than expected, judged from rewards alone."""
    return [
        AdvantageComponent(
            name="group",
            target="axisrl_grpo.advantages.group:GroupAdvantage",
            config="axisrl_grpo.config:GroupAdvantageConfig",
            summary="Reward against the group's mean, in units of its standard deviation",
        ),
        AdvantageComponent(
            name="dr-grpo",
            target="axisrl_grpo.advantages.dr_grpo:DrGrpoAdvantage",
            summary="Reward against the group's mean, in units of reward",
        ),
        AdvantageComponent(
            name="rloo",
            target="axisrl_grpo.advantages.rloo:RlooAdvantage",
            summary="Reward against the mean of the group's other rollouts",
        ),
        AdvantageComponent(
            name="reinforce-pp",
            target="axisrl_grpo.advantages.reinforce_pp:ReinforcePpAdvantage",
            summary="Reward, whitened over the global batch",
            group_relative=False,
        ),
        AdvantageComponent(
            name="reinforce-pp-baseline",
            target="axisrl_grpo.advantages.reinforce_pp:ReinforcePpBaselineAdvantage",
            summary="Reward against the group's mean, whitened over the global batch",
        ),
        AdvantageComponent(
            name="turn",
            target="axisrl_grpo.advantages.turn:TurnAdvantage",
            config="axisrl_grpo.config:TurnAdvantageConfig",
            summary="The group advantage, plus each turn against the same turn of the others",
        ),
    ]


@hookimpl
def axisrl_losses() -> Iterable[LossComponent]:
    """Policy losses: what a probability ratio may do to the gradient."""
    return [
        LossComponent(
            name="grpo",
            target="axisrl_grpo.losses.grpo:GrpoLoss",
            config="axisrl_grpo.config:GrpoLossConfig",
            summary="Clipped probability-ratio loss with an optional dual clip",
        ),
        LossComponent(
            name="grpo2",
            target="axisrl_grpo.losses.grpo2:Grpo2Loss",
            config="axisrl_grpo.config:Grpo2LossConfig",
            summary="Ratio-weighted policy gradient, bounded by sign of advantage and direction",
        ),
        LossComponent(
            name="gspo",
            target="axisrl_grpo.losses.gspo:GspoLoss",
            config="axisrl_grpo.config:GspoLossConfig",
            summary="Clipped loss on the probability ratio of a whole trajectory",
        ),
        LossComponent(
            name="topr",
            target="axisrl_grpo.losses.topr:ToprLoss",
            config="axisrl.config.losses:RatioLossConfig",
            summary="Policy gradient in which bad rollouts fade as the policy leaves them",
        ),
        LossComponent(
            name="cispo",
            target="axisrl_grpo.losses.cispo:CispoLoss",
            config="axisrl_grpo.config:CispoLossConfig",
            summary="Policy gradient weighted with the truncated ratio (CISPO, TIS)",
        ),
        LossComponent(
            name="kimi2-5",
            target="axisrl_grpo.losses.kimi2_5:Kimi25Loss",
            config="axisrl_grpo.config:Kimi25LossConfig",
            summary="Ratio-weighted policy gradient of the tokens that the clip does not move",
        ),
        LossComponent(
            name="reinforce",
            target="axisrl_grpo.losses.reinforce:ReinforceLoss",
            config="axisrl.config.losses:LossConfig",
            summary="Plain policy gradient, without a ratio",
        ),
    ]


@hookimpl
def axisrl_recipes() -> Iterable[RecipeComponent]:
    """Named settings of published algorithms, laid over any recipe."""
    return [
        _preset("dr-grpo", "Dr. GRPO: no standard deviation, sums over a fixed length"),
        _preset("dapo", "DAPO: clip higher, token mean, overlong penalty, dynamic sampling"),
        _preset("rloo", "RLOO: leave-one-out baseline and the plain policy gradient"),
        _preset("gspo", "GSPO: ratio, clip and mean of whole trajectories"),
        _preset("cispo", "CISPO: the gradient survives the clip"),
    ]


@hookimpl
def axisrl_config_resolved(config: RunConfig) -> Iterable[ConfigProblem]:
    """Two losses do not go with everything. Kimi K2.5's ratio holds the mismatch already: no
    truncated importance sampling on top. REINFORCE has no ratio: a second update of a window would
    learn from another policy's samples as if they were its own."""
    if config.loss is None:
        return
    if config.loss.id == "grpo/reinforce" and config.train.updates_per_sync > 1:
        yield ConfigProblem(
            path="train.updates_per_sync",
            message=f"train.updates_per_sync {config.train.updates_per_sync} leaves loss "
            f"{config.loss.use} without a correction: it has no ratio, and only the first update "
            "of a window is on policy",
            fix="set train.updates_per_sync=1, or use grpo/cispo or grpo/grpo",
        )
    if config.loss.id != "grpo/kimi2-5":
        return
    for index, correction in enumerate(config.corrections):
        if correction.id in _COUNT_MISMATCH:
            yield ConfigProblem(
                path=f"corrections.{index}",
                message=f"{correction.use} does not go with loss {config.loss.use}: that ratio is "
                "measured from the rollout, so the gap between engine and trainer would count "
                "twice",
                fix="remove the correction, or use the loss grpo/cispo with base: old",
            )


def _preset(name: str, summary: str) -> RecipeComponent:
    return RecipeComponent(
        name=name, target=f"axisrl_grpo:presets/{name}.yaml", summary=summary, preset=True
    )
