"""gsm8k/math: what the policy is shown, and that it is asked once."""

import asyncio

import pytest

from axisrl.errors import EnvFailure
from axisrl.types import Action, Task
from axisrl_gsm8k.config import Example, MathEnvConfig
from axisrl_gsm8k.env import MathEnv

TASK = Task(id="t", data={"question": "What is {1} + 2?", "answer": "#### 3"})
STOPPED = Action(text="#### 3", finish_reason="stop")


def shown(context, **options):
    observation = asyncio.run(MathEnv(MathEnvConfig(**options), context).reset(TASK))
    return [(message.role, message.content) for message in observation.messages]


def test_the_prompt_is_the_question_in_its_template(context):
    assert shown(context, template="Q: {question}\nA:") == [("user", "Q: What is {1} + 2?\nA:")]


def test_the_default_template_asks_for_the_marker(context):
    [(role, content)] = shown(context)
    assert role == "user"
    assert content.startswith("What is {1} + 2?")
    assert '"####"' in content


def test_a_system_message_comes_first(context):
    messages = shown(context, system="Be brief.", template="{question}")
    assert messages == [("system", "Be brief."), ("user", "What is {1} + 2?")]


def test_examples_are_turns_before_the_task(context):
    examples = (Example(question="1+1", answer="#### 2"), Example(question="2+2", answer="#### 4"))
    assert shown(context, template="{question}=", examples=examples) == [
        ("user", "1+1="),
        ("assistant", "#### 2"),
        ("user", "2+2="),
        ("assistant", "#### 4"),
        ("user", "What is {1} + 2?="),
    ]


def test_examples_can_stand_in_the_one_user_message(context):
    examples = (Example(question="1+1", answer="#### 2"),)
    messages = shown(context, template="{question}=", examples=examples, example_style="text")
    assert messages == [("user", "1+1=\n#### 2\n\nWhat is {1} + 2?=")]


def test_the_builtin_example_is_a_solved_problem_with_the_marker(context):
    messages = shown(context, examples="builtin")
    assert [role for role, _ in messages] == ["user", "assistant", "user"]
    assert messages[1][1].endswith("#### 27")


def test_one_answer_ends_the_rollout(context):
    async def play():
        env = MathEnv(MathEnvConfig(), context)
        await env.reset(TASK)
        return await env.step(STOPPED)

    result = asyncio.run(play())
    assert (result.done, result.truncated, result.observation) == (True, False, None)


def test_an_answer_cut_off_by_the_token_limit_is_truncated(context):
    async def play():
        env = MathEnv(MathEnvConfig(), context)
        await env.reset(TASK)
        return await env.step(Action(text="9 + 9", finish_reason="length"))

    result = asyncio.run(play())
    assert (result.done, result.truncated) == (False, True)


@pytest.mark.parametrize("before", [["reset", "step"], ["reset", "close"], []])
def test_a_step_out_of_order_raises(context, before):
    async def play():
        env = MathEnv(MathEnvConfig(), context)
        for name in before:
            await {"reset": lambda: env.reset(TASK), "close": env.close}.get(
                name, lambda: env.step(STOPPED)
            )()
        await env.step(STOPPED)

    with pytest.raises(RuntimeError, match="one step after reset"):
        asyncio.run(play())


def test_close_can_be_called_twice_and_before_reset(context):
    async def play():
        env = MathEnv(MathEnvConfig(), context)
        await env.close()
        await env.close()

    asyncio.run(play())


@pytest.mark.parametrize("data", [{}, {"question": ""}, {"question": 5}])
def test_a_task_without_a_question_is_an_env_failure(context, data):
    env = MathEnv(MathEnvConfig(), context)
    with pytest.raises(EnvFailure, match="task t has no field 'question'"):
        asyncio.run(env.reset(Task(id="t", data=data)))


def test_a_template_without_the_question_is_refused():
    with pytest.raises(ValueError, match="does not contain"):
        MathEnvConfig(template="Answer!")
