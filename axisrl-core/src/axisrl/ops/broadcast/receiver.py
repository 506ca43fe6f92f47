"""Receiver: takes what a trainer offers into buckets of its own.

It loads nothing, and believes nothing: whoever takes the buckets compares their checksum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import torch
from torch import Tensor

from axisrl.errors import WeightSyncError
from axisrl.ops.broadcast.channel import Channel
from axisrl.ops.broadcast.group import BroadcastGroup, broadcast, connect, identity
from axisrl.ops.broadcast.roster import Layout, Request, Round, layout_from
from axisrl.ops.flat_buckets import Bucket, Entry, buffer_size

_ATTEMPTS = 3


class Party(NamedTuple):
    """Who receives."""

    receiver: str
    """An engine or model, by a name that nobody else has."""
    rank: int = 0
    ranks: int = 1
    """Processes of this receiver; each of them receives."""
    receivers: int = 1
    """How many are brought to these weights at once."""


class _Where(NamedTuple):
    address: str
    offer: int
    timeout_s: float


class Receiver:
    """One process's membership in groups, kept from one update to the next."""

    def __init__(self) -> None:
        self._name = ""
        self._groups: dict[int, BroadcastGroup] = {}
        self._stores: dict[str, Any] = {}

    def receive(
        self,
        location: str,
        party: Party,
        device: torch.device,
        agreed: Callable[[bool], bool] = bool,
    ) -> list[Bucket]:
        """Everything on offer at ``location``, on ``device``.

        ``agreed`` is given whether this process has it, and answers whether every process of the
        receiver does: they must all go on, or all ask again. Raises ``WeightSyncError``.
        """
        where = _parsed(location)
        problems = []
        for _ in range(_ATTEMPTS):
            buckets: list[Bucket] | None = None
            try:
                buckets = self._attempt(where, party, device)
            except Exception as problem:  # noqa: BLE001 - other processes wait for this one's word
                problems.append(f"{type(problem).__name__}: {problem}")
            if agreed(buckets is not None) and buckets is not None:
                return buckets
            self.leave()
        told = problems[-1] if problems else "another process of this receiver failed"
        raise WeightSyncError(
            f"rank {party.rank} of {party.ranks} received nothing from {where.address} "
            f"(offer {where.offer}, {where.timeout_s:g} s, {_ATTEMPTS} attempts): {told}",
            fix="see why the trainer or another receiver ended or hangs; raise "
            "trainer.transfer_timeout_s for large models",
        )

    def leave(self) -> None:
        """Forget every group."""
        for group in self._groups.values():
            group.close()
        self._groups.clear()
        self._name = ""

    def _attempt(self, where: _Where, party: Party, device: torch.device) -> list[Bucket]:
        channel = Channel(where.address, where.timeout_s)
        try:
            request = Request(
                offer=where.offer,
                device=identity(device),
                group=self._name,
                **party._asdict(),
            )
            channel.say(request._asdict())
            answer = channel.hear()
            if "problem" in answer:
                raise ConnectionError(answer["problem"])
            shares = [layout_from(share) for share in answer["shares"]]
            # First the memory: who lacks it must not be waited for in a group.
            buckets = [[_empty(entries, device) for entries in share] for share in shares]
            self._join(Round(**answer["round"]), shares, where.timeout_s, device)
            broadcast(self._in_turns(buckets))
            return [bucket for share in buckets for bucket in share]
        finally:
            channel.close()

    def _join(
        self, round_: Round, shares: Sequence[Layout], timeout_s: float, device: torch.device
    ) -> None:
        if self._name == round_.group:
            return
        self.leave()
        if round_.store not in self._stores:
            self._stores = {round_.store: connect(round_.store, timeout_s)}
        store = self._stores[round_.store]
        for sender, share in enumerate(shares):
            if share:
                place = round_.place(sender)
                self._groups[sender] = BroadcastGroup(store, place, timeout_s, device)
        self._name = round_.group

    def _in_turns(
        self, buckets: Sequence[Sequence[Bucket]]
    ) -> Iterator[tuple[BroadcastGroup, Tensor]]:
        """One bucket of each sender, then the next of each."""
        for turn in zip_longest(*buckets):
            for sender, bucket in enumerate(turn):
                if bucket is not None:
                    yield self._groups[sender], bucket.buffer


def _empty(entries: Sequence[Entry], device: torch.device) -> Bucket:
    buffer = torch.empty(buffer_size(entries), dtype=torch.uint8, device=device)
    return Bucket(buffer, tuple(entries))


def _parsed(location: str) -> _Where:
    parts = urlsplit(location)
    try:
        (timeout_s,) = parse_qs(parts.query)["timeout_s"]
        return _Where(parts.netloc, int(parts.path.removeprefix("/")), float(timeout_s))
    except (KeyError, ValueError) as problem:
        raise WeightSyncError(f"{location!r} is not where weights can be received") from problem
