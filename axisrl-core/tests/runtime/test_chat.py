"""Pitfalls 1 to 5: tokens by appends equal the full render, or the trace branches; sampled ids are
never replaced."""

import re

import numpy as np
import pytest

from axisrl.errors import EngineFailure
from axisrl.runtime.chat import Conversation
from axisrl.types import GenerateResult, Message, Observation, SamplingParams

SPECIALS = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")


class ChatMl:
    """A character tokenizer with ChatML's special tokens and Qwen's way of writing tool results."""

    stop_ids = frozenset({1, 2})
    vocab_size = 300

    def __init__(self, strip_thoughts=False, trim=False):
        self.strip_thoughts, self.trim = strip_thoughts, trim

    def encode(self, text):
        parts = re.split("(" + "|".join(map(re.escape, SPECIALS)) + ")", text)
        return [
            token
            for part in parts
            for token in (
                [SPECIALS.index(part)] if part in SPECIALS else [ord(c) + 3 for c in part]
            )
        ]

    def decode(self, ids, skip_special=True):
        kept = [i for i in ids if not (skip_special and i < 3)]
        return "".join(SPECIALS[i] if i < 3 else chr(i - 3) for i in kept)

    def render(self, messages, tools, add_generation_prompt):
        text = f"[{len(tools)} tools]" if tools else ""
        for at, message in enumerate(messages):
            text += self._one(message, messages, at)
        return text + ("<|im_start|>assistant\n" if add_generation_prompt else "")

    def _one(self, message, messages, at):
        content = message["content"]
        if message["role"] == "tool":
            opens = at == 0 or messages[at - 1]["role"] != "tool"
            ends = at + 1 == len(messages) or messages[at + 1]["role"] != "tool"
            block = f"\n<tool_response>\n{content}\n</tool_response>"
            return ("<|im_start|>user" if opens else "") + block + ("<|im_end|>\n" if ends else "")
        if message["role"] == "assistant":
            later_user = any(m["role"] == "user" for m in messages[at + 1 :])
            if self.strip_thoughts and later_user:
                content = re.sub("<think>.*</think>", "", content)
            content = content.strip() if self.trim else content
        return f"<|im_start|>{message['role']}\n{content}<|im_end|>\n"


def said(tokenizer, text, *, stop=True):
    ids = tokenizer.encode(text) + ([1] if stop else [])
    return GenerateResult(
        ids=np.asarray(ids, np.int32),
        logprobs=np.zeros(len(ids), np.float32),
        versions=np.zeros(len(ids), np.int32),
        finish_reason="stop" if stop else "length",
    )


def user(text):
    return Observation(messages=(Message(role="user", content=text),))


def tools(*texts):
    return Observation(
        messages=tuple(Message(role="tool", content=text, tool_call_id="c") for text in texts)
    )


def talk(tokenizer, *turns):
    chat = Conversation(tokenizer)
    for turn in turns:
        if isinstance(turn, Observation):
            chat.observe(turn)
        else:
            chat.act(turn, SamplingParams(), 0)
    return chat


def full_render(tokenizer, chat):
    return tokenizer.encode(tokenizer.render([m.to_chat() for m in chat.messages], (), True))


def test_two_tool_turns_by_appends_equal_the_full_render():
    t = ChatMl()
    chat = talk(t, user("2+2?"), said(t, "call a"), tools("4"), said(t, "call b"), tools("5"))
    assert chat.context.tolist() == full_render(t, chat)
    assert [node.kind for node in chat.trace] == [
        "prompt",
        "sampled",
        "observation",
        "sampled",
        "observation",
    ]


def test_two_tool_results_in_a_row_form_one_block():
    t = ChatMl()
    chat = talk(t, user("?"), said(t, "call both"), tools("4", "5"))
    assert chat.context.tolist() == full_render(t, chat)
    assert t.decode(chat.trace[2].ids.tolist(), skip_special=False).count("<|im_start|>user") == 1


def test_the_sampled_stop_token_is_trained_and_not_written_twice():
    t = ChatMl()
    chat = talk(t, user("?"), said(t, "yes"), user("sure?"))
    assert chat.trace[1].ids[-1] == 1
    assert chat.context.tolist() == full_render(t, chat)
    row = talk(t, user("?"), said(t, "yes")).trace.rows()[0]
    assert row.trained[-1]


def test_a_stop_token_that_was_not_sampled_is_not_trained():
    t = ChatMl()
    chat = talk(t, user("?"), said(t, "cut off he", stop=False), user("go on"), said(t, "re"))
    row = chat.trace.rows()[0]
    closing = len(chat.trace[0].ids) + len("cut off he")
    assert row.ids[closing] == 1
    assert not row.trained[closing]
    assert row.trained.sum() == len("cut off he") + len("re") + 1


def test_stripped_thoughts_become_a_branch_and_each_token_is_trained_once():
    t = ChatMl(strip_thoughts=True)
    chat = talk(
        t, user("?"), said(t, "<think>hm</think>yes"), user("sure?"), said(t, "<think>a</think>no")
    )
    branch = chat.trace[2]
    assert branch.kind == "prompt"
    assert branch.parent == 0  # both share the first prompt whole
    assert "hm" not in t.decode(chat.context.tolist())
    rows = chat.trace.rows()
    assert sum(int(row.trained.sum()) for row in rows) == chat.trace.sampled_tokens


def test_the_text_of_a_message_never_replaces_the_sampled_ids():
    t = ChatMl(trim=True)
    chat = talk(t, user("?"), said(t, "  spaced  "), user("ok"))
    assert chat.trace[1].ids.tolist() == [*t.encode("  spaced  "), 1]
    assert chat.trace[2].parent == 1


def test_a_replaced_history_branches_from_what_both_share():
    t = ChatMl()
    chat = talk(t, user("long question"), said(t, "call"), tools("x" * 50), said(t, "more"))
    chat.observe(Observation(messages=(Message(role="user", content="summary"),), replace=True))
    assert t.decode(chat.context.tolist()) == "user\nsummary\nassistant\n"
    assert [m.content for m in chat.messages] == ["summary"]
    assert chat.trace[4].parent is None


def test_a_retried_turn_hangs_below_the_shared_prompt():
    t = ChatMl()
    chat = talk(t, user("?"), said(t, "first try"))
    again = (*chat.messages[:1], Message(role="user", content="try again"))
    chat.observe(Observation(messages=again, replace=True))
    assert chat.trace[2].parent is None  # the prompt's "assistant" header is not in the new render
    assert chat.context.tolist() == full_render(t, chat)


def test_tools_are_part_of_the_first_render():
    t = ChatMl()
    chat = Conversation(t)
    chat.observe(Observation(messages=user("?").messages, tools=({"name": "search"},)))
    assert t.decode(chat.context.tolist()).startswith("[1 tools]")


def test_a_model_call_needs_an_observation_first():
    with pytest.raises(EngineFailure, match="empty"):
        _ = Conversation(ChatMl()).context
