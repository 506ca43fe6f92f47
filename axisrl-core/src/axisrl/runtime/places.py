"""RayPlaces: resource groups as Ray placement groups, one each.

A group that can never fit, or does not while other runs hold the cluster, is an error and not a
wait. It starts no actor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ConfigError

_WAIT_S = 30.0
"""Another run may just be giving its places back."""
_EPSILON = 1e-6
_KINDS = ("CPU", "GPU")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """``count`` actors that are placed together, each with ``gpus`` (a share of one, or
    several)."""

    count: int
    gpus: float = 0.0


class RayPlaces:
    """What is set aside on the cluster that Ray is connected to."""

    def __init__(self, config: PlacementConfig, wait_s: float = _WAIT_S) -> None:
        """``wait_s``: longest time to wait for places that others hold."""
        self._config = config
        self._wait_s = wait_s
        self._groups: dict[str, ResourceGroup] = {}
        self._held: dict[str, Any] = {}

    async def reserve(self, groups: Mapping[str, ResourceGroup]) -> None:
        """Set aside a place for every actor. Raises ``ConfigError`` naming the group, what it needs
        and what there is."""
        from ray.util import placement_group

        wanted = {name: group for name, group in groups.items() if group.count}
        self._check(wanted)
        for name, group in wanted.items():
            self._groups[name] = group
            if not (bundle := self._bundle(group)):
                continue
            bundles = [bundle] * group.count
            self._held[name] = placement_group(bundles, strategy=self._config.strategy.upper())
            if not await asyncio.to_thread(self._held[name].wait, self._wait_s):
                raise self._refusal(name, group, f"free within {self._wait_s:g} s: {_free()}")

    def options(self, group: str) -> dict[str, Any]:
        """Ray's options for an actor of a group; ``""`` is none."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        gpus = self._groups[group].gpus if group else 0.0
        found = {"num_cpus": self._config.cpus_per_actor, "num_gpus": gpus}
        if place := self._held.get(group):
            found["scheduling_strategy"] = PlacementGroupSchedulingStrategy(place)
        return found

    def close(self) -> None:
        """Give every place back."""
        from ray.util import remove_placement_group

        for place in self._held.values():
            remove_placement_group(place)
        self._held.clear()
        self._groups.clear()

    def _bundle(self, group: ResourceGroup) -> dict[str, float]:
        """What one actor needs; Ray refuses zeros."""
        needs = {"CPU": self._config.cpus_per_actor, "GPU": group.gpus}
        return {kind: amount for kind, amount in needs.items() if amount}

    def _check(self, groups: Mapping[str, ResourceGroup]) -> None:
        """Ray waits for ever for what the cluster could not hold if it were empty."""
        nodes = _nodes()
        total, taken = _sum(nodes), dict.fromkeys(_KINDS, 0.0)
        for name, group in [*self._groups.items(), *groups.items()]:
            for kind, amount in self._bundle(group).items():
                largest = max((node.get(kind, 0.0) for node in nodes), default=0.0)
                taken[kind] += amount * group.count
                if amount > largest + _EPSILON or taken[kind] > total[kind] + _EPSILON:
                    left = max(total[kind] - taken[kind] + amount * group.count, 0.0)
                    there = f"{left:g} {kind} for it, {largest:g} on the largest machine"
                    raise self._refusal(name, group, f"the cluster has {there}")

    def _refusal(self, name: str, group: ResourceGroup, there: str) -> ConfigError:
        each = ", ".join(f"{amount:g} {kind}" for kind, amount in self._bundle(group).items())
        return ConfigError(
            f"placement ray cannot hold resource group {name}, {group.count} actors of {each}: "
            f"{there}",
            fix="lower placement.engines, rollout.workers, placement.cpus_per_actor or "
            "placement.gpus_*",
        )


def _nodes() -> Sequence[Mapping[str, float]]:
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _sum(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: sum(node.get(kind, 0.0) for node in nodes) for kind in _KINDS}


def _free() -> str:
    import ray

    free = ray.available_resources()
    return ", ".join(f"{free.get(kind, 0.0):g} {kind}" for kind in _KINDS)
