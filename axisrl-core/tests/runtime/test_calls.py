"""Calls with a deadline: answered, cancelled, made again; and processes ended that are blocked."""

import asyncio
import pickle

import pytest

from axisrl.errors import ActorGone, ActorStuck, ServiceFailure, VerifierFailure
from axisrl.runtime.calls import Call, PromptHandle, answered_by
from axisrl.testing.fakes import FakeClock


def call(name="v", limit_s=1.0):
    return Call(name=name, args=("a rollout",), limit_s=limit_s)


class Actor:
    """A handle whose answers the test gives."""

    def __init__(self):
        self.waiting, self.killed = [], 0

    async def call(self, method, *args):
        answer = asyncio.get_running_loop().create_future()
        self.waiting.append(answer)
        return await answer

    def kill(self):
        self.killed += 1
        for answer in self.waiting:
            if not answer.done():
                answer.set_exception(ActorGone("it was ended"))


async def until(condition):
    while not condition():
        await asyncio.sleep(0)


def test_an_answer_in_time_is_passed_on_and_the_actor_lives():
    async def work():
        actor = Actor()
        asked = asyncio.ensure_future(PromptHandle(actor).call("answer", call()))
        await until(lambda: actor.waiting)
        actor.waiting[0].set_result("yes")
        return await asked, actor.killed

    assert asyncio.run(work()) == ("yes", 0)


def test_an_actor_that_does_not_answer_is_ended_after_the_deadline_and_the_grace():
    async def work():
        actor = Actor()
        handle = PromptHandle(actor, grace_s=0.01)
        with pytest.raises(ActorStuck, match=r"did not answer for 0.02 s"):
            await handle.call("answer", call(limit_s=0.01))
        return actor.killed

    assert asyncio.run(work()) == 1


def test_an_actor_that_answers_others_meanwhile_is_busy_and_not_blocked():
    async def work():
        actor, clock = Actor(), FakeClock()
        handle = PromptHandle(actor, grace_s=0.01, clock=clock)
        first, second = (
            asyncio.ensure_future(handle.call("answer", call(limit_s=0.01))) for _ in range(2)
        )
        await until(lambda: len(actor.waiting) == 2)
        clock.advance(0.015)
        actor.waiting[0].set_result("one")
        await first
        clock.advance(0.015)  # over the second call's own time, not over what the actor has
        await asyncio.sleep(0.03)
        alive = actor.killed == 0
        actor.waiting[1].set_result("two")
        return alive, await second

    assert asyncio.run(work()) == (True, "two")


def test_what_has_no_deadline_is_waited_for():
    async def work():
        actor = Actor()
        asked = asyncio.ensure_future(PromptHandle(actor, grace_s=0.0).call("start"))
        await until(lambda: actor.waiting)
        actor.waiting[0].set_result(None)
        await asked

    asyncio.run(work())


def test_a_cancelled_caller_leaves_no_call_behind():
    async def work():
        actor = Actor()
        asked = asyncio.ensure_future(PromptHandle(actor).call("answer", call()))
        await until(lambda: actor.waiting)
        asked.cancel()
        await asyncio.gather(asked, return_exceptions=True)
        await asyncio.sleep(0)
        return actor.waiting[0].cancelled(), actor.killed

    assert asyncio.run(work()) == (True, 0)


class Members:
    """Answers every call with ``error``, or with its name."""

    def __init__(self, error=None):
        self.error = error

    async def call(self, method, call):
        if self.error:
            raise self.error
        return f"{method} {call.name}"


def test_what_members_answer_is_the_answer():
    answer = answered_by(Members(), "verifier v", call(), VerifierFailure)
    assert asyncio.run(answer) == "answer v"


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ActorGone("gone"), "service w, ask took down 3 processes"),
        (
            ActorStuck("no answer"),
            "service w, ask gave no answer within 1 s and blocked its process, which was ended",
        ),
    ],
)
def test_a_call_that_takes_processes_down_is_named_as_the_callers_failure(error, told):
    with pytest.raises(ServiceFailure) as caught:
        asyncio.run(answered_by(Members(error), "service w, ask", call(), ServiceFailure))
    assert caught.value.message == told


def test_what_the_callee_raises_on_purpose_passes():
    wrong = VerifierFailure("verifier v: KeyError: 'answer'")
    with pytest.raises(VerifierFailure) as caught:
        asyncio.run(answered_by(Members(wrong), "verifier v", call(), VerifierFailure))
    assert caught.value is wrong


def test_a_call_crosses_processes():
    assert pickle.loads(pickle.dumps(call())) == call()
