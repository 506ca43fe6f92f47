"""What this plugin offers, and which combinations it refuses. Imports nothing but
:mod:`axisrl.plugins`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from axisrl.plugins import ConfigProblem, CorrectionComponent, hookimpl

if TYPE_CHECKING:
    from axisrl.config.schema import RunConfig, Use

_WEIGHTS = ("icepop/token-tis", "icepop/sequence-tis")


@hookimpl
def axisrl_corrections() -> Iterable[CorrectionComponent]:
    """One a file of :mod:`axisrl_icepop.corrections`."""
    return [
        CorrectionComponent(
            name="icepop",
            target="axisrl_icepop.corrections.icepop:Icepop",
            config="axisrl_icepop.config:IcepopConfig",
            summary="Leaves out tokens whose trainer/rollout ratio is outside a band",
        ),
        CorrectionComponent(
            name="token-tis",
            target="axisrl_icepop.corrections.token_tis:TokenTis",
            config="axisrl_icepop.config:TokenTisConfig",
            summary="Weights tokens by truncated importance sampling",
        ),
        CorrectionComponent(
            name="sequence-mask",
            target="axisrl_icepop.corrections.sequence_mask:SequenceMask",
            config="axisrl_icepop.config:SequenceMaskConfig",
            summary="Leaves out trajectories whose geometric mean ratio is outside a band",
        ),
        CorrectionComponent(
            name="sequence-tis",
            target="axisrl_icepop.corrections.sequence_tis:SequenceTis",
            config="axisrl_icepop.config:SequenceTisConfig",
            summary="Weights trajectories by truncated importance sampling",
        ),
        CorrectionComponent(
            name="veto",
            target="axisrl_icepop.corrections.veto:Veto",
            config="axisrl_icepop.config:VetoConfig",
            summary="Leaves out trajectories with a token the trainer finds all but impossible",
        ),
        CorrectionComponent(
            name="k3-filter",
            target="axisrl_icepop.corrections.k3_filter:K3Filter",
            config="axisrl_icepop.config:K3FilterConfig",
            summary="Leaves out tokens or trajectories whose k3 estimate of the KL is over a bound",
        ),
    ]


@hookimpl
def axisrl_config_resolved(config: RunConfig) -> Iterable[ConfigProblem]:
    """Combinations that would count the gap between rollout and trainer twice. A loss without a
    choice of base refuses them itself: its own plugin knows what its ratio holds."""
    if config.loss is None:
        return []
    listed = [use.id for use in config.corrections]
    return [
        *_repeated(listed),
        *_two_weights(listed),
        *_held_by_the_ratio(listed, config.loss),
    ]


def _repeated(listed: Sequence[str]) -> Iterator[ConfigProblem]:
    for index, use in enumerate(listed):
        if use.startswith("icepop/") and use in listed[:index]:
            yield ConfigProblem(
                path=f"corrections.{index}",
                message=f"{use} is listed already, as corrections.{listed.index(use)}",
                fix="remove one of the two",
            )


def _two_weights(listed: Sequence[str]) -> Iterator[ConfigProblem]:
    first, second = (listed.index(use) if use in listed else -1 for use in _WEIGHTS)
    if min(first, second) >= 0:
        yield ConfigProblem(
            path=f"corrections.{max(first, second)}",
            message=f"{_WEIGHTS[0]} and {_WEIGHTS[1]} are the same importance weight, by token and "
            "by trajectory: together they apply it twice",
            fix="keep one of them",
        )


def _held_by_the_ratio(listed: Sequence[str], loss: Use) -> Iterator[ConfigProblem]:
    if loss.options.get("base") != "rollout":
        return
    name = loss.id
    for index, use in enumerate(listed):
        if use in _WEIGHTS:
            yield ConfigProblem(
                path=f"corrections.{index}",
                message=f"{use} weights by trainer against rollout, and the ratio of {name} is "
                "measured from the rollout: it holds that weight already",
                fix="set loss.base=old, or remove it",
            )
