"""Who takes part in a round, and what everybody in it is told. Sends and receives nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from axisrl.ops.broadcast.group import Backend, Place
from axisrl.ops.flat_buckets import Entry, entries_from

Layout = Sequence[Sequence[Entry]]
"""What each bucket of a sender holds."""


class Request(NamedTuple):
    """One process of a receiver asks for an offer."""

    offer: int
    receiver: str
    """Which engine or model: the same for all its processes, and nobody else's."""
    rank: int
    ranks: int
    """Processes of this receiver."""
    receivers: int
    """How many are brought to these weights at once."""
    device: str
    """:func:`axisrl.ops.broadcast.group.identity`."""
    group: str
    """The groups it still holds; empty when none."""

    @property
    def member(self) -> tuple[str, int]:
        """Who asks, whatever it asks for."""
        return self.receiver, self.rank


class Round(NamedTuple):
    """What a member of a round is told."""

    group: str
    """Name of the groups; ``/`` and the sender's number follow."""
    rank: int
    """In every group it is in."""
    size: int
    """Of each group."""
    backend: Backend
    store: str
    """Address of the store where groups meet."""

    def place(self, sender: int) -> Place:
        """In the group of a sender."""
        return Place(f"{self.group}/{sender}", self.rank, self.size, self.backend)


def whole(requests: Collection[Request]) -> list[Request]:
    """Those of receivers of which every process has asked, in an order that does not depend on
    when."""
    found: dict[str, set[int]] = {}
    for request in requests:
        found.setdefault(request.receiver, set()).add(request.rank)
    there = [each for each in requests if len(found[each.receiver]) == each.ranks]
    return sorted(there, key=lambda request: request.member)


def complete(requests: Collection[Request]) -> bool:
    """Whether all who are expected have asked."""
    there = {request.receiver for request in whole(requests)}
    expected = max((request.receivers for request in requests), default=0)
    return 0 < expected <= len(there)


def described(layout: Layout) -> list[Any]:
    """For JSON."""
    return [list(entries) for entries in layout]


def layout_from(found: Sequence[Any]) -> list[tuple[Entry, ...]]:
    """Undo :func:`described`."""
    return [entries_from(entries) for entries in found]
