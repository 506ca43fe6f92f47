"""``core/sum``: total = sum of weight x verifier score + sum of weight x env reward part.

Parts are logged weighted, verifiers under their name and env parts under ``env.<name>``, and add up
to the total. With ``turn_level`` each env part is credited at the model call it answered, verifier
scores at the end.

Two kinds of mistake are errors instead of a silently different reward: a weight for a verifier that
the run does not have, and an env part missing from ``env_weights`` where those are given. It does
not clip, scale or look at text.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping

from axisrl.builtin.config import SumRewardConfig
from axisrl.errors import ConfigError
from axisrl.protocols.verifier import Rollout
from axisrl.types import BuildContext, RewardResult, Verdict


class SumReward:
    """Verifier names are checked at construction where the context has the service ``verifiers``
    (their names), else at the first call."""

    def __init__(self, config: SumRewardConfig, context: BuildContext) -> None:
        self._config = config
        verifiers = context.services.get("verifiers")
        if verifiers is not None:
            self._check(verifiers)

    def __call__(self, rollout: Rollout, verdicts: Mapping[str, Verdict]) -> RewardResult:
        """See :meth:`axisrl.protocols.Reward.__call__`."""
        self._check(verdicts)
        parts = {name: self._scored(name, verdict) for name, verdict in verdicts.items()}
        for name, value in rollout.env_parts.items():
            parts[f"env.{name}"] = self._env_weight(name, rollout.env_parts) * value
        per_turn = self._per_turn(rollout) if self._config.turn_level else None
        return RewardResult(total=math.fsum(parts.values()), parts=parts, per_turn=per_turn)

    def _per_turn(self, rollout: Rollout) -> tuple[float, ...]:
        turns = rollout.turn_parts or ({},) * rollout.turns
        return tuple(
            math.fsum(self._env_weight(name, parts) * value for name, value in parts.items())
            for parts in turns
        )

    def _scored(self, name: str, verdict: Verdict) -> float:
        if verdict.score is None:
            raise ValueError(f"verifier {name} gave no score: {verdict.error}")
        return self._config.weights.get(name, 1.0) * verdict.score

    def _env_weight(self, name: str, parts: Iterable[str]) -> float:
        weights = self._config.env_weights
        if weights and name not in weights:
            raise ConfigError(
                f"core/sum: env_weights has no weight for the env's reward part {name!r}; it names "
                f"{', '.join(sorted(weights))} and the env gave {', '.join(sorted(parts))}",
                fix=f"add `{name}: 1.0` (or 0 to leave it out) to env_weights",
            )
        return weights.get(name, 1.0)

    def _check(self, verifiers: Iterable[str]) -> None:
        known = sorted(verifiers)
        for name in self._config.weights:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                raise ConfigError(
                    f"core/sum: weights names verifier {name!r}, the run has "
                    f"{', '.join(known) or 'no verifier'}",
                    fix=f"write `{near[0]}`" if near else f"remove it, or add verifiers.{name}",
                )
