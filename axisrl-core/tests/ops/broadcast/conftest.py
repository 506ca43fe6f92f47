"""Senders and receivers in threads of this process, over gloo."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from axisrl.ops.broadcast.follower import Follower
from axisrl.ops.broadcast.leader import Leader
from axisrl.ops.broadcast.receiver import Party, Receiver
from axisrl.ops.flat_buckets import filled, layout, views

CPU = torch.device("cpu")


class World:
    """Some senders of the same weights. ``weights`` may be changed between offers."""

    def __init__(self, senders, timeout_s):
        self.weights = {f"w{n}": torch.randn(30_000 + n) for n in range(7)}
        self.leader = Leader("127.0.0.1", senders=senders, timeout_s=timeout_s)
        self.followers = [
            Follower(self.leader.address, n, self.share(n, senders), timeout_s)
            for n in range(1, senders)
        ]
        self.share_0 = self.share(0, senders)

    def share(self, number, senders):
        def fill():
            buckets = layout(self.weights, 200_000)[number::senders]
            return [filled(self.weights, entries) for entries in buckets]

        return fill

    def offer(self):
        """New weights are on offer; where."""
        self.weights = {name: torch.randn_like(value) for name, value in self.weights.items()}
        return self.leader.offer(self.share_0)

    def holds(self, buckets):
        """Whether they are the weights."""
        found = {name: value for bucket in buckets for name, value in views(bucket).items()}
        same = [torch.equal(found[name], value) for name, value in self.weights.items()]
        return found.keys() == self.weights.keys() and all(same)

    def close(self):
        self.leader.close()
        for follower in self.followers:
            follower.close()


@pytest.fixture
def world():
    """``world(senders, timeout_s)``."""
    made = []

    def make(senders=1, timeout_s=20.0):
        made.append(World(senders, timeout_s))
        return made[-1]

    yield make
    for each in made:
        each.close()
    left = [thread for thread in threading.enumerate() if thread.name == "axisrl-broadcast"]
    assert not left, "a thread outlived its sender"


@pytest.fixture
def together():
    """``together(calls)`` runs them in threads at once; what each returned or raised."""

    def run(*calls):
        with ThreadPoolExecutor(len(calls)) as pool:
            futures = [pool.submit(call) for call in calls]
            return [future.exception() or future.result() for future in futures]

    return run


@pytest.fixture
def receive(together):
    """``receive(receivers, location)``: each takes the offer as an engine of its own."""

    def run(receivers, location, announced=None):
        announced = announced or len(receivers)
        return together(
            *(
                lambda name=name, each=each: each.receive(
                    location, Party(name, receivers=announced), CPU
                )
                for name, each in receivers.items()
            )
        )

    return run


@pytest.fixture
def engines():
    """``engines(count)``: receivers by name."""
    return lambda count: {f"engine-{n}": Receiver() for n in range(count)}
