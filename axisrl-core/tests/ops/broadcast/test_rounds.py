"""Senders and receivers together: axisrl.ops.broadcast.{leader,follower,desk,share,receiver}."""

import multiprocessing
import os
import signal
import threading

import pytest
import torch

from axisrl.errors import WeightSyncError
from axisrl.ops.broadcast.channel import Channel
from axisrl.ops.broadcast.receiver import Party, Receiver

CPU = torch.device("cpu")
spawn = multiprocessing.get_context("spawn")


@pytest.mark.parametrize("senders", [1, 2, 3])
@pytest.mark.parametrize("receivers", [1, 2, 3])
def test_any_number_of_receivers_gets_the_shares_of_any_number_of_senders(
    world, receive, engines, senders, receivers
):
    world, engines = world(senders), engines(receivers)
    for _ in range(2):
        found = receive(engines, world.offer())
        assert all(world.holds(buckets) for buckets in found)


def groups(receivers):
    return {each._name for each in receivers.values()}


def test_groups_are_kept_while_the_same_receivers_come(world, receive, engines):
    world, both = world(2), engines(2)
    receive(both, world.offer())
    (first,) = groups(both)
    receive(dict(reversed(both.items())), world.offer())
    assert groups(both) == {first}
    one = {"engine-0": both["engine-0"]}
    receive(one, world.offer())
    assert groups(one) != {first}
    receive(both, world.offer())
    assert len(groups(both)) == 1 and first not in groups(both)


def test_a_sender_without_a_share_is_left_out_and_comes_back(world, receive, engines):
    world, both = world(2), engines(2)
    whole = world.weights
    receive(both, world.offer())
    for weights in ({"w0": whole["w0"]}, whole):
        world.weights = weights
        found = receive(both, world.offer())
        assert all(world.holds(buckets) for buckets in found)


def test_an_offer_can_be_had_again_by_one_who_comes_late(world, receive, engines):
    world = world(2)
    location = world.offer()
    receive(engines(2), location)
    (buckets,) = receive({"late": Receiver()}, location)
    assert world.holds(buckets)


def test_who_is_expected_and_does_not_come_costs_a_wait_and_nothing_else(world, receive, engines):
    world = world(timeout_s=0.8)
    found = receive(engines(2), world.offer(), announced=3)
    assert all(world.holds(buckets) for buckets in found)


def test_what_is_on_offer_are_copies(world, receive, engines):
    world = world(2)
    location = world.offer()
    before = {name: value.clone() for name, value in world.weights.items()}
    for value in world.weights.values():
        value.zero_()
    (buckets,) = receive(engines(1), location)
    world.weights = before
    assert world.holds(buckets)


def test_an_older_offer_is_refused_by_its_number(world, receive, engines):
    world = world()
    old = world.offer()
    world.offer()
    (problem,) = receive(engines(1), old)
    assert isinstance(problem, WeightSyncError)
    assert "offer 1 is not held any more; offer 2 is on offer now" in problem.message


def test_what_was_withdrawn_is_refused_and_frees_its_memory(world, receive, engines):
    world = world(2)
    location = world.offer()
    world.leader.withdraw()
    for follower in world.followers:
        follower.withdraw()
    (problem,) = receive(engines(1), location)
    assert "nothing is on offer now" in problem.message
    assert not world.leader._share._buckets and not world.followers[0]._share._buckets


def test_processes_of_an_engine_go_on_together_or_ask_again(world, together):
    world, words = world(2), threading.Barrier(2)
    location = world.offer()
    told = [[], []]

    def agreed(rank):
        def all_do(mine):
            told[rank].append(mine and not (rank == 1 and len(told[1]) == 0))
            words.wait(20)
            both = all(each[-1] for each in told)
            words.wait(20)
            return both

        return all_do

    found = together(
        *(
            lambda rank=rank: Receiver().receive(
                location, Party("engine", rank, 2), CPU, agreed(rank)
            )
            for rank in (0, 1)
        )
    )
    assert all(world.holds(buckets) for buckets in found)
    assert told == [[True, True], [False, True]]


class Fails(Receiver):
    """Comes to a round as often as told without receiving anything."""

    def __init__(self, times, how):
        super().__init__()
        self.times, self.how = times, how

    def _join(self, *args):
        if self.times and self.how == "before its group":
            self.times -= 1
            raise RuntimeError("broken on purpose")
        super()._join(*args)
        if self.times:
            self.times -= 1
            raise RuntimeError("broken on purpose")


@pytest.mark.parametrize("how", ["before its group", "in its group"])
def test_one_failure_costs_the_others_another_round(world, receive, how):
    world = world(2, timeout_s=1.5)
    engines = {"engine-0": Receiver(), "engine-1": Fails(1, how)}
    found = receive(engines, world.offer())
    assert all(world.holds(buckets) for buckets in found), found
    assert all(world.holds(b) for b in receive(engines, world.offer()))


def test_one_who_fails_for_good_is_told_with_its_rank(world, receive):
    world = world(timeout_s=0.5)
    (problem,) = receive({"engine-0": Fails(9, "in its group")}, world.offer())
    assert isinstance(problem, WeightSyncError)
    assert "rank 0 of 1 received nothing" in problem.message
    assert "broken on purpose" in problem.message
    assert "transfer_timeout_s" in problem.fix


def die_in_the_middle(location, ready, formed):
    """A process that is killed when its groups stand and the senders send."""

    class Dies(Receiver):
        def _join(self, *args):
            super()._join(*args)
            formed.wait(60)
            os.kill(os.getpid(), signal.SIGKILL)

    ready.set()
    Dies().receive(location, Party("engine-1", receivers=2), CPU)


def test_a_process_that_dies_in_the_middle_is_left_out_of_the_next_round(world, receive):
    class Tells(Receiver):
        def _join(self, *args):
            super()._join(*args)
            formed.set()

    world, ready, formed = world(2, timeout_s=6.0), spawn.Event(), spawn.Event()
    world.weights = {f"w{n}": torch.zeros(5_000_000) for n in range(4)}  # no socket holds it all
    location = world.offer()
    dying = spawn.Process(target=die_in_the_middle, args=(location, ready, formed))
    dying.start()
    assert ready.wait(60)
    (buckets,) = receive({"engine-0": Tells()}, location, announced=2)
    dying.join(30)
    assert dying.exitcode == -signal.SIGKILL
    assert world.holds(buckets)


def test_a_follower_that_cannot_copy_is_named(world):
    world = world(2)
    world.followers[0]._fill = dict().popitem
    with pytest.raises(WeightSyncError, match=r"2 senders: sender 1: KeyError"):
        world.offer()


def test_a_follower_that_is_gone_is_an_error_and_not_a_wait(world):
    world = world(2, timeout_s=5.0)
    world.followers[0].close()
    with pytest.raises(WeightSyncError, match="sender 1 did not answer"):
        world.offer()


def test_a_receiver_whose_sender_is_gone_is_told(world, receive, engines):
    world = world()
    location = world.offer()
    world.leader.close()
    (problem,) = receive(engines(1), location)
    assert isinstance(problem, WeightSyncError)
    assert "ConnectionRefusedError" in problem.message


@pytest.mark.parametrize("location", ["/dev/shm/x", "tcp://h:1/x?timeout_s=1", "tcp://h:1/1"])
def test_a_location_of_another_transport_is_refused(location):
    with pytest.raises(WeightSyncError, match="is not where weights can be received"):
        Receiver().receive(location, Party("engine"), CPU)


def test_a_stranger_does_not_disturb(world, receive, engines):
    world = world()
    location = world.offer()
    stranger = Channel(world.leader.address, 5.0)
    stranger.say({"hello": 1})
    (buckets,) = receive(engines(1), location)
    stranger.close()
    assert world.holds(buckets)
