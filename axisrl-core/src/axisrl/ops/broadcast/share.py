"""Share: what one sender holds of the weights on offer, and its part in sending it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from axisrl.ops.broadcast.group import BroadcastGroup, broadcast, identity
from axisrl.ops.broadcast.roster import Round, described
from axisrl.ops.flat_buckets import Bucket

Fill = Callable[[], Sequence[Bucket]]
"""Copies a sender's share of the trainer's weights into new buckets."""


class Share:
    """Belongs to one thread at a time."""

    def __init__(self, sender: int, timeout_s: float) -> None:
        self._sender = sender
        self._timeout_s = timeout_s
        self._buckets: Sequence[Bucket] = ()
        self._group: BroadcastGroup | None = None

    def take(self, fill: Fill) -> None:
        """Hold new buckets instead of the old ones, which are freed first."""
        self._buckets = ()
        self._buckets = fill()

    def free(self) -> None:
        """Hold nothing."""
        self._buckets = ()

    def leave(self) -> None:
        """Forget the group."""
        if self._group is not None:
            self._group.close()
            self._group = None

    def about(self) -> dict[str, Any]:
        """In JSON: what is held, and where."""
        buckets = self._buckets
        return {
            "buckets": described([bucket.entries for bucket in buckets]),
            "device": identity(buckets[0].buffer.device) if buckets else "",
        }

    def send(self, round_: Round, store: Any) -> None:
        """Send every bucket to the receivers of a round. Raises what a group raises, and forgets
        the group then."""
        if not self._buckets:
            return
        place = round_.place(self._sender)
        try:
            if self._group is None or self._group.place != place:
                self.leave()
                device = self._buckets[0].buffer.device
                self._group = BroadcastGroup(store, place, self._timeout_s, device)
            group = self._group
            broadcast((group, bucket.buffer) for bucket in self._buckets)
        except BaseException:
            self.leave()
            raise
