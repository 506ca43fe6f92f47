"""RayPlaces: resource groups as Ray placement groups.

1. A group has one of its own, a bundle an actor, ``apart`` on a machine each. Groups with
   ``bundles`` share one, whose bundles are a GPU each and hold an actor or more of every such
   group.
2. An actor that takes the place of another one gets its bundle.
3. A group that can never fit, or does not while other runs hold the cluster, is an error and not a
   wait.

It starts no actor.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ConfigError

_WAIT_S = 30.0
"""Another run may just be giving its places back."""
_EPSILON = 1e-6
_KINDS = ("CPU", "GPU")
_SHARED = "shared"
"""Name of the places of all groups with ``bundles``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceGroup:
    """``count`` actors that are placed together, each with ``gpus`` (a share of one, or
    several)."""

    count: int
    gpus: float = 0.0
    bundles: int = 0
    """They are dealt out over so many bundles, which they share with other groups that have as
    many."""
    apart: bool = False
    """Each on a machine of its own."""


class _Places(NamedTuple):
    """What is asked of Ray at once, and how an error calls it."""

    what: str
    bundles: Sequence[Mapping[str, float]]
    apart: bool = False


class RayPlaces:
    """What is set aside on the cluster that Ray is connected to."""

    def __init__(self, config: PlacementConfig, wait_s: float = _WAIT_S) -> None:
        """``wait_s``: longest time to wait for places that others hold."""
        self._config = config
        self._wait_s = wait_s
        self._groups: dict[str, ResourceGroup] = {}
        self._seats: dict[str, dict[str, int]] = {}
        """Group -> actor -> its number there."""
        self._late: set[str] = set()
        """Groups that share bundles which had been set aside before them."""
        self._asked: list[_Places] = []
        self._held: dict[str, Any] = {}

    async def reserve(self, groups: Mapping[str, ResourceGroup]) -> None:
        """Set aside a place for every actor. Raises ``ConfigError`` naming the group, what it needs
        and what there is.

        A group with ``bundles`` that comes later shares the GPUs of those there are.
        """
        from ray.util import placement_group

        wanted = {name: group for name, group in groups.items() if group.count}
        asked = self._places(wanted)
        self._check(list(asked.values()))
        self._groups |= wanted
        for name, places in asked.items():
            self._asked.append(places)
            strategy = "STRICT_SPREAD" if places.apart else self._config.strategy.upper()
            self._held[name] = placement_group(list(places.bundles), strategy=strategy)
            if not await asyncio.to_thread(self._held[name].wait, self._wait_s):
                raise _refusal(places, f"free within {self._wait_s:g} s: {_free()}")

    def options(self, group: str, actor: str) -> dict[str, Any]:
        """Ray's options for an actor of a group; ``""`` is none."""
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        seats = self._seats.setdefault(group, {})
        seat = seats.setdefault(actor, len(seats))
        known = self._groups.get(group, ResourceGroup(count=0))
        place = self._held.get(_SHARED if known.bundles else group)
        cpus = 0.0 if group in self._late else self._config.cpus_per_actor
        found = {"num_cpus": cpus, "num_gpus": known.gpus}
        if place:
            index = seat % known.bundles if known.bundles else seat if known.apart else -1
            found["scheduling_strategy"] = PlacementGroupSchedulingStrategy(place, index)
        return found

    def close(self) -> None:
        """Give every place back."""
        from ray.util import remove_placement_group

        for place in self._held.values():
            remove_placement_group(place)
        self._held.clear()
        self._groups.clear()
        self._seats.clear()
        self._late.clear()
        self._asked.clear()

    def _places(self, groups: Mapping[str, ResourceGroup]) -> dict[str, _Places]:
        """What has to be asked of Ray for these groups, which needs no zeros."""
        found = {}
        for name, group in groups.items():
            if not group.bundles and (each := self._needs(1, group.gpus)):
                what = f"resource group {name}, {group.count} actors of {_said(each)}"
                what += ", each on a machine of its own" if group.apart else ""
                found[name] = _Places(what, [each] * group.count, group.apart)
        if shared := {name: group for name, group in groups.items() if group.bundles}:
            found |= self._shared(shared)
        return found

    def _shared(self, groups: Mapping[str, ResourceGroup]) -> dict[str, _Places]:
        """Bundles for these groups and the earlier ones; nothing where those are there already."""
        earlier = {name: group for name, group in self._groups.items() if group.bundles}
        everybody = {**earlier, **groups}
        count = max(group.bundles for group in everybody.values())
        dealt = [
            [group.gpus for group in everybody.values() for _ in range(at, group.count, count)]
            for at in range(count)
        ]
        taken = max(map(sum, dealt))
        if taken > 1 + _EPSILON:
            raise ConfigError(
                f"placement.colocate puts {len(max(dealt, key=sum))} actors on one GPU, and they "
                f"take {taken:g} of it",
                fix="lower placement.gpus_engine and placement.gpus_trainer, which are shares of "
                "one GPU here",
            )
        if _SHARED in self._held:
            self._late |= groups.keys()
            return {}
        bundles = [self._needs(len(shares), float(taken > 0)) for shares in dealt]
        what = f"the places that {' and '.join(groups)} share, {count} of {_said(bundles[0])}"
        return {_SHARED: _Places(what, bundles)} if bundles[0] else {}

    def _needs(self, actors: int, gpus: float) -> dict[str, float]:
        """Of a bundle; Ray refuses zeros."""
        needs = {"CPU": actors * self._config.cpus_per_actor, "GPU": gpus}
        return {kind: amount for kind, amount in needs.items() if amount}

    def _check(self, asked: Sequence[_Places]) -> None:
        """Ray waits for ever for what the cluster could not hold if it were empty."""
        nodes = _nodes()
        total, taken = _sum(nodes), dict.fromkeys(_KINDS, 0.0)
        for places in [*self._asked, *asked]:
            fitting = sum(_fits(places.bundles[0], node) for node in nodes)
            if places.apart and fitting < len(places.bundles):
                raise _refusal(places, f"the cluster has {fitting} such machines")
            for kind in _KINDS:
                each = [bundle.get(kind, 0.0) for bundle in places.bundles]
                largest = max((node.get(kind, 0.0) for node in nodes), default=0.0)
                left = total[kind] - taken[kind]
                taken[kind] += sum(each)
                if max(each) > largest + _EPSILON or taken[kind] > total[kind] + _EPSILON:
                    there = f"{max(left, 0.0):g} {kind} for it, {largest:g} on the largest machine"
                    raise _refusal(places, f"the cluster has {there}")


def _refusal(places: _Places, there: str) -> ConfigError:
    return ConfigError(
        f"placement ray cannot hold {places.what}: {there}",
        fix="lower placement.engines or engine_nodes, rollout.workers, placement.verifiers or "
        "another count of processes, placement.cpus_per_actor or placement.gpus_*",
    )


def _fits(bundle: Mapping[str, float], node: Mapping[str, float]) -> bool:
    return all(amount <= node.get(kind, 0.0) + _EPSILON for kind, amount in bundle.items())


def _said(bundle: Mapping[str, float]) -> str:
    return ", ".join(f"{amount:g} {kind}" for kind, amount in bundle.items())


def _nodes() -> Sequence[Mapping[str, float]]:
    import ray

    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _sum(nodes: Sequence[Mapping[str, float]]) -> dict[str, float]:
    return {kind: sum(node.get(kind, 0.0) for node in nodes) for kind in _KINDS}


def _free() -> str:
    import ray

    free = ray.available_resources()
    return ", ".join(f"{free.get(kind, 0.0):g} {kind}" for kind in _KINDS)
