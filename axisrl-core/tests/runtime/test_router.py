"""Replicas behind a router: who serves what, and that nothing is left behind, however calls end."""

import asyncio

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axisrl.errors import ActorGone, ActorStuck, EngineFailure
from axisrl.runtime.router import Router
from axisrl.types import GenerateRequest, SamplingParams


class Replica:
    """An engine handle that answers when it is told to."""

    def __init__(self, name="engine"):
        self.name, self.seen, self.waiting, self.dead = name, [], [], False

    async def call(self, method, *args):
        if self.dead:
            raise ActorGone("the engine actor is gone", fix="see its log")
        if method == "abort":
            self.seen.append(("abort", *args))
            return 1
        self.seen.append((args[0].session, args[0].id))
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]


def asked(session, number=0):
    return GenerateRequest(
        id=f"{session}-{number}",
        prompt_ids=np.zeros(1, np.int32),
        sampling=SamplingParams(),
        seed=0,
        session=session,
    )


def generate(router, session, number=0):
    return asyncio.ensure_future(called(router, session, number))


async def called(router, session, number=0):
    return await router.call("generate", asked(session, number), session=session)


async def settled():
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def with_replicas(count, work):
    """``work(router, *replicas)`` on a loop."""
    replicas = [Replica() for _ in range(count)]

    async def whole():
        return await work(Router("engine", replicas), *replicas)

    return asyncio.run(whole())


def test_new_sessions_go_to_the_least_loaded_replica():
    async def work(router, *replicas):
        for session in "abcd":
            generate(router, session)
        await settled()
        assert router.load == (2, 1, 1)
        replicas[2].waiting[0].set_result("done")
        await settled()
        generate(router, "e")
        await settled()
        assert [[s for s, _ in one.seen] for one in replicas] == [["a", "d"], ["b"], ["c", "e"]]

    with_replicas(3, work)


def test_a_session_stays_on_its_replica_even_when_another_is_idle():
    async def work(router, first, second):
        generate(router, "a")
        generate(router, "b")
        generate(router, "a", 1)
        await settled()
        second.waiting[0].set_result("done")
        generate(router, "a", 2)
        await settled()
        assert first.seen == [("a", "a-0"), ("a", "a-1"), ("a", "a-2")]

    with_replicas(2, work)


def test_of_two_idle_replicas_the_one_that_houses_fewer_sessions_is_chosen():
    async def work(router, first, second):
        for session in "ab":
            call = generate(router, session)
            await settled()
            (first if session == "a" else second).waiting[0].set_result("done")
            await call
        assert router.sessions == {"a": 0, "b": 1}

    with_replicas(2, work)


def test_a_released_session_is_forgotten_and_one_without_a_name_never_kept():
    async def work(router, replica):
        for session in ("a", ""):
            generate(router, session)
        await settled()
        assert router.sessions == {"a": 0}
        router.release("a")
        router.release("never heard of")
        assert router.sessions == {}

    with_replicas(1, work)


def test_a_session_is_told_something_where_it_is_and_nowhere_else():
    async def work(router, first, second):
        generate(router, "a")
        generate(router, "b")
        await settled()
        assert await router.tell("b", "abort", "b") == 1
        assert await router.tell("stranger", "abort", "stranger") is None
        assert ("abort", "b") in second.seen
        assert [entry for entry in first.seen if entry[0] == "abort"] == []

    with_replicas(2, work)


def test_a_session_whose_replica_is_gone_cannot_be_told_anything():
    async def work(router, replica):
        generate(router, "a")
        await settled()
        replica.dead = True
        assert await router.tell("a", "abort", "a") is None
        assert router.sessions == {}

    with_replicas(1, work)


def test_a_failed_request_raises_as_itself_and_leaves_no_load():
    async def work(router, replica):
        call = generate(router, "a")
        await settled()
        replica.waiting[0].set_exception(EngineFailure("no room"))
        with pytest.raises(EngineFailure, match="no room"):
            await call
        assert router.load == (0,)
        assert router.sessions == {"a": 0}

    with_replicas(1, work)


def test_a_request_that_ran_out_of_time_leaves_no_load():
    async def work(router, replica):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await called(router, "a")
        assert router.load == (0,)

    with_replicas(1, work)


def test_calls_of_a_replica_that_is_gone_are_made_again_on_another_and_its_sessions_move():
    async def work(router, first, second):
        calls = [generate(router, session) for session in "abc"]  # a and c live on the first
        await settled()
        first.dead = True
        for call in first.waiting:
            call.set_exception(ActorGone("the engine actor is gone"))
        await settled()
        assert router.sessions == {"a": 1, "b": 1, "c": 1}
        for call in second.waiting:
            call.set_result("done")
        assert await asyncio.gather(*calls) == ["done"] * 3
        assert router.load == (0, 0)

    with_replicas(2, work)


def test_with_no_replica_left_calls_wait_until_one_is_connected():
    async def work(router, replica):
        replica.dead = True
        call = generate(router, "a")
        await settled()
        assert not call.done()
        router.connect(0, Replica())
        await settled()
        router._replicas[0].waiting[0].set_result("done")
        assert await call == "done"

    with_replicas(1, work)


def test_a_call_that_takes_replicas_down_is_given_up_and_counted():
    async def work(router, replica):
        call = generate(router, "a")
        for _ in range(3):
            await settled()
            router._replicas[0].waiting[-1].set_exception(ActorGone("out of memory"))
            await settled()
            router.connect(0, Replica())
        with pytest.raises(ActorGone, match="engine: a generate call took down 3 of them"):
            await call
        assert router.load == (0,)

    with_replicas(1, work)


def test_calls_that_were_lost_twice_are_made_one_at_a_time():
    async def work(router, replica):
        calls = [generate(router, session) for session in "abc"]
        for _ in range(2):
            await settled()
            for call in router._replicas[0].waiting:
                call.set_exception(ActorGone("out of memory"))
            await settled()
            router.connect(0, Replica())
        for count in (1, 2, 3):
            await settled()
            assert len(router._replicas[0].waiting) == count
            router._replicas[0].waiting[-1].set_result("done")
        assert await asyncio.gather(*calls) == ["done"] * 3

    with_replicas(1, work)


def test_a_late_word_of_a_replica_that_was_replaced_does_not_count_against_its_successor():
    async def work(router, first, second):
        calls = [generate(router, "a", number) for number in range(2)]
        await settled()
        first.waiting[0].set_exception(ActorGone("gone"))
        await settled()
        successor = Replica()
        router.connect(0, successor)
        first.waiting[1].set_exception(ActorGone("gone"))
        await settled()
        generate(router, "b")
        await settled()
        assert [session for session, _ in successor.seen] == ["b"]
        for call in calls:
            call.cancel()

    with_replicas(2, work)


ENDS = st.sampled_from(["answer", "fail", "die", "cancel", "abort"])


@settings(max_examples=60)
@given(
    count=st.integers(1, 3),
    episodes=st.lists(st.lists(ENDS, min_size=1, max_size=4), min_size=1, max_size=8),
    order=st.randoms(use_true_random=False),
)
def test_whatever_happens_in_whatever_order_no_load_and_no_session_is_left(count, episodes, order):
    """Each episode makes calls one after the other, and each call ends in its own way."""

    async def play(router, session, ends):
        try:
            for number, _ in enumerate(ends):
                await called(router, session, number)
        except (ActorGone, EngineFailure):
            pass
        finally:
            router.release(session)

    async def work(router, *replicas):
        plays = {
            str(at): asyncio.ensure_future(play(router, str(at), ends))
            for at, ends in enumerate(episodes)
        }
        while not all(task.done() for task in plays.values()):
            await settled()
            under_way = [
                (r, at) for r in replicas for at, f in enumerate(r.waiting) if not f.done()
            ]
            if not under_way:
                break
            assert sum(router.load) == len(under_way)
            replica, at = order.choice(under_way)
            calls = [entry for entry in replica.seen if entry[0] != "abort"]
            session, name = calls[at]
            end = episodes[int(session)][int(name.split("-")[1])]
            await finish(end, replica.waiting[at], plays[session], router)
            if end == "die":
                router.connect(replicas.index(replica), replica)
        await asyncio.gather(*plays.values(), return_exceptions=True)
        assert router.load == (0,) * count
        assert router.sessions == {}

    with_replicas(count, work)


async def finish(end, future, play, router):
    if end == "abort":
        await router.tell("0", "abort", "0")
    if end in ("answer", "abort"):
        future.set_result("done")
    elif end == "cancel":
        play.cancel()
    else:
        future.set_exception(ActorGone("gone") if end == "die" else EngineFailure("no"))
    await settled()


class OneProcess:
    """While the call ``b`` is on it nobody gets an answer, and everybody ends it."""

    def __init__(self):
        self.now = []

    async def call(self, method, name):
        self.now.append(name)
        await asyncio.sleep(0)
        beside = list(self.now)
        self.now.remove(name)
        if "b" in beside:
            raise ActorStuck("no answer")
        return f"{name} done"


def test_calls_that_one_kept_waiting_are_made_again_without_it_and_it_fails():
    async def work():
        process = OneProcess()
        router = Router("verifier", [process])
        calls = [asyncio.ensure_future(router.call("answer", name)) for name in "abc"]
        while not all(call.done() for call in calls):
            router.connect(0, process)
            await asyncio.sleep(0)
        return await asyncio.gather(*calls, return_exceptions=True)

    first, stuck, last = asyncio.run(work())
    assert (first, last) == ("a done", "c done")
    assert isinstance(stuck, ActorStuck)
