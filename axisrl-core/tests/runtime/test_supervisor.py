"""What is lost is noticed, replaced where another one can take its place, and paid for."""

import asyncio

import pytest

from axisrl.errors import ActorGone, ConfigError, Irreplaceable, RunFailed
from axisrl.runtime.supervisor import Post, RestartBudget, Supervisor


class Actor:
    """A handle whose process can end or hang."""

    def __init__(self, pid=1):
        self.pid, self.gone, self.hangs, self.killed = pid, asyncio.Event(), False, False

    async def call(self, method, *args):
        if method == "ping" and not self.hangs and not self.gone.is_set():
            return True
        await self.gone.wait()
        raise ActorGone(f"the {method} call reached nobody")

    def kill(self):
        self.killed = True
        self.gone.set()


def supervised(work, *, restarts=10, lease_s=60.0, restart_s=60.0):
    """``work(supervisor)`` on a loop, with the supervisor closed at its end."""

    async def whole():
        supervisor = Supervisor(RestartBudget(restarts), lease_s, restart_s)
        try:
            return await work(supervisor)
        finally:
            await supervisor.close()

    return asyncio.run(whole())


def refilling(post, successors):
    async def refill():
        successor = successors.pop(0)
        if isinstance(successor, Exception):
            raise successor
        post.fill(successor)

    return refill


def test_an_actor_that_died_is_replaced_and_who_waits_goes_on_with_its_successor():
    async def work(supervisor):
        first, second = Actor(), Actor()
        post = Post("engine 0", first)
        supervisor.watch(post, refilling(post, [second]))
        first.gone.set()
        return await supervisor.guard(post.successor(first)) is second, supervisor.budget.recoveries

    assert supervised(work) == (True, {"replaced_engine": 1})


def test_an_actor_that_does_not_answer_is_ended_and_replaced():
    async def work(supervisor):
        first = Actor()
        first.hangs = True
        post = Post("engine 0", first)
        supervisor.watch(post, refilling(post, [Actor()]))
        await supervisor.guard(post.successor(first))
        return first.killed

    assert supervised(work, lease_s=0.01)


def test_the_second_death_is_noticed_too():
    async def work(supervisor):
        actors = [Actor(), Actor(), Actor()]
        post = Post("engine 0", actors[0])
        supervisor.watch(post, refilling(post, actors[1:]))
        for actor in actors[:2]:
            actor.gone.set()
            await supervisor.guard(post.successor(actor))
        return post.handle is actors[2]

    assert supervised(work)


def test_a_successor_that_dies_while_it_starts_is_replaced_as_well():
    async def work(supervisor):
        first, third = Actor(), Actor()
        post = Post("engine 0", first)
        supervisor.watch(post, refilling(post, [ActorGone("died young"), third]))
        first.gone.set()
        return await supervisor.guard(post.successor(first)) is third, supervisor.budget.recoveries

    assert supervised(work) == (True, {"replaced_engine": 2})


def test_the_loss_of_an_actor_that_nobody_replaces_ends_what_is_guarded():
    async def work(supervisor):
        actor, ended = Actor(), asyncio.Event()

        async def guarded():
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

        supervisor.watch(Post("trainer 0", actor))
        actor.gone.set()
        with pytest.raises(ActorGone, match="reached nobody"):
            await supervisor.guard(guarded())
        return ended.is_set()

    assert supervised(work)


@pytest.mark.parametrize("error", [ConfigError("wrong"), Irreplaceable("nothing to load")])
def test_what_keeps_a_place_empty_ends_what_is_guarded(error):
    async def work(supervisor):
        actor = Actor()
        post = Post("engine 0", actor)
        supervisor.watch(post, refilling(post, [error]))
        actor.gone.set()
        await supervisor.guard(post.successor(actor))

    with pytest.raises(type(error), match=error.message):
        supervised(work)


def test_a_used_up_budget_ends_the_run_and_names_the_loss():
    async def work(supervisor):
        actors = [Actor() for _ in range(3)]
        post = Post("engine 0", actors[0])
        supervisor.watch(post, refilling(post, actors[1:]))
        for actor in actors:
            actor.gone.set()
            await supervisor.guard(post.successor(actor))

    with pytest.raises(
        RunFailed, match=r"reached nobody; placement\.restarts 2 is used up"
    ) as found:
        supervised(work, restarts=2)
    assert not isinstance(found.value, ActorGone)  # the driver must not try again


def test_a_budget_is_full_again_after_a_checkpoint_and_keeps_count():
    budget = RestartBudget(1)
    budget.spend(ActorGone("one"), "replaced_engine")
    budget.refill()
    budget.spend(ActorGone("two"), "replaced_engine")
    with pytest.raises(RunFailed, match="three"):
        budget.spend(ActorGone("three"), "rewinds")
    assert budget.recoveries == {"replaced_engine": 2}


def test_guarded_work_gives_its_result_and_its_own_error():
    async def work(supervisor):
        async def fails():
            raise ValueError("mine")

        with pytest.raises(ValueError, match="mine"):
            await supervisor.guard(fails())
        return await supervisor.guard(asyncio.sleep(0, "done"))

    assert supervised(work) == "done"


def test_a_pooled_actor_may_be_silent_and_its_loss_costs_nothing():
    async def work(supervisor):
        first, second = Actor(), Actor()
        first.hangs = True
        post = Post("verifier 0", first, pooled=True)
        supervisor.watch(post, refilling(post, [second]))
        await asyncio.sleep(0.05)  # several leases
        assert not first.killed
        first.kill()  # by a caller that got no answer
        return await supervisor.guard(post.successor(first)) is second, supervisor.budget.recoveries

    assert supervised(work, restarts=0, lease_s=0.01) == (True, {"replaced_verifier": 1})


def test_a_pooled_actor_whose_successors_do_not_even_start_is_paid_for():
    async def work(supervisor):
        first = Actor()
        post = Post("service-wiki 0", first, pooled=True)
        supervisor.watch(post, refilling(post, [ActorGone("died young")] * 3))
        first.gone.set()
        await supervisor.guard(post.successor(first))

    with pytest.raises(RunFailed, match=r"died young; placement\.restarts 2 is used up"):
        supervised(work, restarts=2)


def test_a_place_that_stays_empty_too_long_is_a_loss_of_its_own():
    async def work(supervisor):
        first = Actor()
        post = Post("engine 0", first)

        async def refill():
            await asyncio.Event().wait()

        supervisor.watch(post, refill)
        first.gone.set()
        await supervisor.guard(post.successor(first))

    late = r"engine 0 was not there again within 0\.01 s .*; placement\.restarts 2 is used up"
    with pytest.raises(RunFailed, match=late):
        supervised(work, restarts=2, restart_s=0.01)
