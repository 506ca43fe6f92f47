import pytest

from axisrl.errors import ConfigError
from axisrl.runtime.conversations import converse
from axisrl.runtime.trajectory import Trajectory
from axisrl.testing.fakes import CharTokenizer
from axisrl.types import Task

TOKENIZER = CharTokenizer()


def chat(*turns):
    return [{"role": role, "content": text} for role, text in turns]


def conversation(messages, **data):
    return converse(Task(id="t", data={"messages": messages, **data}), TOKENIZER)


def learnt(conversation):
    """Text of each trained run of tokens."""
    nodes = [node for node in conversation.trace if node.kind == "sampled"]
    return [TOKENIZER.decode(node.ids.tolist(), skip_special=False) for node in nodes]


def test_every_assistant_turn_is_learnt_with_its_end_and_nothing_else():
    messages = chat(("system", "Be kind."), ("user", "Hi"), ("assistant", "Hello"))
    messages += chat(("user", "Bye"), ("assistant", "See you"))
    assert learnt(conversation(messages)) == ["Hello<|im_end|>", "See you<|im_end|>"]


def test_the_tokens_are_those_of_the_whole_render():
    messages = chat(("user", "Hi"), ("assistant", "Hello"), ("tool", "42"), ("assistant", "It is"))
    (leaf,) = (built := conversation(messages)).trace.leaves()
    whole = TOKENIZER.render(messages, [], False).removesuffix("\n")
    assert TOKENIZER.decode(built.trace.ids(leaf).tolist(), skip_special=False) == whole


def test_a_turn_of_weight_zero_is_context():
    messages = chat(("user", "Hi"), ("assistant", "Wrong"), ("user", "No"), ("assistant", "Right"))
    messages[1]["weight"] = 0
    assert learnt(conversation(messages)) == ["Right<|im_end|>"]


def test_what_follows_the_last_assistant_turn_is_left_out():
    messages = chat(("user", "Hi"), ("assistant", "Hello"), ("user", "unanswered"))
    (sample,) = Trajectory(conversation(messages).trace, 0).samples
    assert "unanswered" not in TOKENIZER.decode(sample.ids.tolist())


def test_tools_are_shown_in_every_turn():
    tool = {"type": "function", "function": {"name": "add"}}
    messages = chat(("user", "Hi"), ("assistant", "A"), ("user", "And"), ("assistant", "B"))
    built = conversation(messages, tools=[tool])
    (leaf,) = built.trace.leaves()
    text = TOKENIZER.decode(built.trace.ids(leaf).tolist(), skip_special=False)
    assert text == TOKENIZER.render(messages, [tool], False).removesuffix("\n")


class Thinker(CharTokenizer):
    """Prompts with an opened thought that it does not write for a turn that was held."""

    end = "<|im_end|>"

    def render(self, messages, tools, add_generation_prompt):
        text = super().render(messages, tools, add_generation_prompt)
        text = text.replace("<|im_end|>", self.end)
        return text + "<think>\n" if add_generation_prompt else text


def test_a_template_that_prompts_for_more_than_it_writes_still_gives_the_end_of_a_turn():
    task = Task(id="t", data={"messages": chat(("user", "Hi"), ("assistant", "Hello"))})
    assert learnt(converse(task, Thinker())) == ["Hello<|im_end|>"]


def test_a_template_that_does_not_end_a_turn_is_refused():
    """A model that is never taught to stop does not stop."""
    endless = Thinker()
    endless.end = ""
    task = Task(id="t", data={"messages": chat(("user", "Hi"), ("assistant", "Hello"))})
    with pytest.raises(ConfigError, match="writes an assistant turn without its end"):
        converse(task, endless)


@pytest.mark.parametrize(
    ("messages", "reason"),
    [
        (None, "it has no list of `messages`"),
        ([], "it has no list of `messages`"),
        (chat(("user", "Hi")), "it has no assistant turn to learn"),
        (chat(("assistant", "Hi")), "follows no other message"),
        (chat(("narrator", "Hi"), ("assistant", "x")), "role 'narrator'"),
        ([{"role": "user", "content": 3}], "not an object with role and content"),
    ],
)
def test_a_task_that_teaches_nothing_is_named_with_the_reason(messages, reason):
    with pytest.raises(ConfigError, match=f"task t of dataset .*{reason}"):
        conversation(messages)
