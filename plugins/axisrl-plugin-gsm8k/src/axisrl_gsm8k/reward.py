"""The reward of a right answer, with a small share for stating any number as the format asks.

It does not judge: the verdict is a verifier's. The share gives a model that is never right
something to learn from in its first updates.

Formula: ``(1 - w) score + w stated``, ``w`` the format weight, ``stated`` 1 or 0; in [0, 1] for
scores in [0, 1].
"""

from __future__ import annotations

from collections.abc import Mapping

from axisrl.errors import VerifierFailure
from axisrl.protocols import Rollout
from axisrl.types import BuildContext, RewardResult, Verdict
from axisrl_gsm8k.answers import final_answer, last_number, parse_number
from axisrl_gsm8k.config import FormatRewardConfig


class FormatReward:
    """``parts`` are ``correct`` and ``format``; they sum to ``total``."""

    def __init__(self, config: FormatRewardConfig, context: BuildContext) -> None:
        self._config = config

    def __call__(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> RewardResult:
        """Raises ``VerifierFailure`` when the verdict is missing or could not be made."""
        score = self._score(rollout, verdicts)
        weight = self._config.format_weight
        stated = float(self._states_a_number(rollout.answer))
        parts = {"correct": (1 - weight) * score, "format": weight * stated}
        return RewardResult(total=sum(parts.values()), parts=parts)

    def _states_a_number(self, text: str) -> bool:
        if self._config.mode == "flexible":
            return last_number(text) is not None
        stated = final_answer(text)
        return stated is not None and parse_number(stated) is not None

    def _score(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> float:
        name = self._config.verdict
        if name not in verdicts:
            raise VerifierFailure(
                f"gsm8k/format needs the verdict {name!r}; there are: {', '.join(verdicts) or '-'}",
                fix=f"add a verifier under verifiers.{name}, or set the reward's `verdict`",
            )
        verdict = verdicts[name]
        if verdict.score is None:
            raise VerifierFailure(
                f"verifier {name!r} could not judge {rollout.id}: {verdict.error}"
            )
        return verdict.score
