"""Replicas behind a router: who serves what, and that nothing is left behind, however calls end."""

import asyncio
import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from axisrl.errors import EngineFailure, RunFailed
from axisrl.runtime.router import EngineRouter
from axisrl.types import GenerateRequest, SamplingParams


class Replica:
    """An engine handle that answers when it is told to."""

    def __init__(self, name="engine"):
        self.name, self.seen, self.waiting, self.dead = name, [], [], False

    async def call(self, method, *args):
        if self.dead:
            raise RunFailed("the engine actor is gone", fix="see its log")
        if method == "abort":
            self.seen.append(("abort", *args))
            return 1
        self.seen.append((args[0].session, args[0].id))
        self.waiting.append(asyncio.get_running_loop().create_future())
        return await self.waiting[-1]

    @property
    def unanswered(self):
        return [at for at, future in enumerate(self.waiting) if not future.done()]


def asked(session, number=0):
    return GenerateRequest(
        id=f"{session}-{number}",
        prompt_ids=np.zeros(1, np.int32),
        sampling=SamplingParams(),
        seed=0,
        session=session,
    )


def generate(router, session, number=0):
    return asyncio.ensure_future(router.call("generate", asked(session, number)))


async def settled():
    """Let every task that can run do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def with_replicas(count, work):
    """``work(router, *replicas)`` on a loop."""
    replicas = [Replica() for _ in range(count)]

    async def whole():
        return await work(EngineRouter(replicas), *replicas)

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


def test_an_abort_goes_to_the_sessions_replica_and_nowhere_else():
    async def work(router, first, second):
        generate(router, "a")
        generate(router, "b")
        await settled()
        assert await router.call("abort", "b") == 1
        assert await router.call("abort", "stranger") == 0
        assert ("abort", "b") in second.seen
        assert [entry for entry in first.seen if entry[0] == "abort"] == []

    with_replicas(2, work)


def test_an_abort_of_all_reaches_every_replica_and_one_that_is_gone_counts_nothing():
    async def work(router, first, second, third):
        second.dead = True
        assert await router.call("abort") == 2
        assert first.seen == third.seen == [("abort", None)]

    with_replicas(3, work)


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
                await router.call("generate", asked("a"))
        assert router.load == (0,)

    with_replicas(1, work)


def test_a_replica_that_is_gone_fails_its_request_and_its_sessions_move():
    async def work(router, first, second):
        for session in "abc":  # a and c live on the first
            generate(router, session)
        await settled()
        first.dead = True
        with pytest.raises(EngineFailure, match=r"engine rank 0 is gone, 1 of 2 engines are left"):
            await generate(router, "a", 1)
        assert router.sessions == {"b": 1}
        for session in "ca":
            generate(router, session, 2)
        await settled()
        assert second.seen[1:] == [("c", "c-2"), ("a", "a-2")]
        assert router.load == (2, 3)  # what waits on the first ends by its own handle

    with_replicas(2, work)


def test_when_no_replica_is_left_the_error_says_so_and_why():
    async def work(router, *replicas):
        for replica in replicas:
            replica.dead = True
        said = []
        for session in "abc":
            with pytest.raises(EngineFailure) as caught:
                await generate(router, session)
            said.append(caught.value.message)
        gone = "the engine actor is gone"
        assert said[0] == f"engine rank 0 is gone, 1 of 2 engines are left: {gone}"
        assert said[1] == f"engine rank 1 is gone, 0 of 2 engines are left: {gone}"
        assert "0 of 2 engines are left" in said[2]
        assert (router.load, router.sessions) == ((0, 0), {})

    with_replicas(2, work)


def test_an_engine_that_was_started_again_is_found_when_no_other_is_left():
    async def work(router, replica):
        replica.dead = True
        with pytest.raises(EngineFailure):
            await generate(router, "a")
        replica.dead = False
        call = generate(router, "a", 1)
        await settled()
        replica.waiting[0].set_result("done")
        assert await call == "done"

    with_replicas(1, work)


def test_a_router_passes_on_only_what_it_can_route():
    async def work(router, replica):
        with pytest.raises(AttributeError, match="update_weights is not routed"):
            await router.call("update_weights", None)

    with_replicas(1, work)


def test_a_router_travels_with_its_handles():
    assert pickle.loads(pickle.dumps(EngineRouter([Replica(), Replica()]))).load == (0, 0)


ENDS = st.sampled_from(["answer", "fail", "die", "cancel", "abort"])


@settings(max_examples=60, deadline=None)
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
                await router.call("generate", asked(session, number))
        except EngineFailure:
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
        await asyncio.gather(*plays.values(), return_exceptions=True)
        assert router.load == (0,) * count
        assert router.sessions == {}

    with_replicas(count, work)


async def finish(end, future, play, router):
    if end == "abort":
        await router.call("abort", None)
    if end in ("answer", "abort"):
        future.set_result("done")
    elif end == "cancel":
        play.cancel()
    else:
        gone = RunFailed("gone") if end == "die" else EngineFailure("no")
        future.set_exception(gone)
    await settled()
