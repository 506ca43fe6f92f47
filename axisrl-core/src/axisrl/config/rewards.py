"""Checks that a run's rewards and their weights go together. It knows names alone, no component."""

from __future__ import annotations

from collections.abc import Collection

from axisrl.config.problems import nearest


def check_reward_weights(rewards: Collection[str], weights: Collection[str]) -> None:
    """Raise ``ValueError`` where there is no reward, or a weight names one that is not there."""
    if not rewards:
        raise ValueError("rewards is empty: a rollout would earn nothing; set rewards.main")
    for name in weights:
        if name not in rewards:
            near = nearest(name, rewards)
            hint = f"; did you mean {near}?" if near else ""
            raise ValueError(
                f"reward_weights.{name} weighs no reward, the run has "
                f"{', '.join(sorted(rewards))}{hint}"
            )
