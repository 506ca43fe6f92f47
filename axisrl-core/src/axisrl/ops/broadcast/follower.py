"""Follower: any sender but the first. It does what the leader says, in a thread of its own."""

from __future__ import annotations

import threading
from typing import Any

from axisrl.ops.broadcast.channel import Channel, Message
from axisrl.ops.broadcast.group import connect
from axisrl.ops.broadcast.roster import Round
from axisrl.ops.broadcast.share import Fill, Share


class Follower:
    """Sender ``number`` >= 1 of a leader."""

    def __init__(self, address: str, number: int, fill: Fill, timeout_s: float) -> None:
        """``fill`` runs when the leader makes an offer, while this rank of the trainer is at rest.
        Raises ``OSError`` when the leader is not at ``address``."""
        self._fill = fill
        self._timeout_s = timeout_s
        self._share = Share(number, timeout_s)
        self._number = number
        self._store: Any = None
        self._busy = threading.Lock()
        self._channel = Channel(address, timeout_s)
        self._channel.say({"sender": number})
        self._channel.wait_for_ever()
        self._thread = threading.Thread(target=self._serve, name="axisrl-broadcast", daemon=True)
        self._thread.start()

    def withdraw(self) -> None:
        """Free what is on offer here; a round that runs is over first."""
        with self._busy:
            self._share.free()

    def close(self) -> None:
        """Leave; idempotent."""
        self._channel.close()
        self._thread.join(self._timeout_s)
        with self._busy:
            self._share.free()
            self._share.leave()

    def _serve(self) -> None:
        while True:
            try:
                asked = self._channel.hear()
                with self._busy:
                    answer = self._answer(asked)
                self._channel.say({**answer, "task": asked["task"]})
            except (OSError, ValueError):  # the leader is gone, or this end was closed
                return

    def _answer(self, asked: Message) -> Message:
        try:
            if "fill" in asked:
                self._share.take(self._fill)
                return self._share.about()
            self._send(Round(**asked["round"]))
        except Exception as problem:  # noqa: BLE001 - the leader must hear of whatever it is
            return {"problem": f"sender {self._number}: {type(problem).__name__}: {problem}"}
        return {}

    def _send(self, round_: Round) -> None:
        if self._store is None:
            self._store = connect(round_.store, self._timeout_s)
        self._share.send(round_, self._store)
