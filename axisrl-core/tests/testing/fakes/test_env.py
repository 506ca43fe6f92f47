import asyncio

import pytest

from axisrl.testing.fakes import EchoEnv, EchoEnvConfig
from axisrl.types import Action, Task

TASK = Task(id="count-3", data={"question": "Say 3.", "answer": "3"})


def play(env, *texts):
    async def scene():
        first = await env.reset(TASK)
        return first, [await env.step(Action(text=t, finish_reason="stop")) for t in texts]

    return asyncio.run(scene())


def test_it_asks_and_says_back_what_was_said():
    first, (step, last) = play(EchoEnv(EchoEnvConfig()), "hm", "3")
    assert first.messages[0].content == "Say 3."
    assert step.observation.messages[0].content == "echo: hm"
    assert (last.done, last.observation, last.reward_parts) == (True, None, {"said": 1.0})


def test_a_forbidden_word_is_the_policys_error():
    _, (step,) = play(EchoEnv(EchoEnvConfig(turns=5)), "this is forbidden")
    assert step.done
    assert step.policy_error


@pytest.mark.parametrize("where", ["reset", "step"])
def test_it_breaks_where_it_is_told_to(where):
    with pytest.raises(OSError, match=where):
        play(EchoEnv(EchoEnvConfig(trouble=f"{where}_raises")), "3")


@pytest.mark.parametrize("where", ["reset", "step"])
def test_it_hangs_where_it_is_told_to(where):
    env = EchoEnv(EchoEnvConfig(trouble=f"{where}_hangs"))

    async def scene():
        await env.reset(TASK)
        await env.step(Action(text="3", finish_reason="stop"))

    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(scene(), 0.01))


def test_it_counts_its_closing():
    env = EchoEnv(EchoEnvConfig())
    asyncio.run(env.close())
    asyncio.run(env.close())
    assert env.closed == 2
