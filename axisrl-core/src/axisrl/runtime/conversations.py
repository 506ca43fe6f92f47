"""ConversationActor: conversations as rollouts that were already held, for supervised fine-tuning.

A task's ``messages`` (chat dicts; ``tools`` beside them) become a trace: what the model's template
writes for an assistant message, its end-of-turn token included, is what was said; everything else
is context. An assistant message with ``weight: 0`` is context too. Nobody sampled these tokens:
their log-probabilities and versions are 0, and a loss that reads them is refused by the
configuration.

It stands where a rollout worker would, so that order, epochs and resume are the sampler's.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from axisrl.errors import ConfigError
from axisrl.protocols import HandleStore
from axisrl.runtime.actors import Actor, ActorBoot
from axisrl.runtime.chat import ChatTokenizer, Conversation, load_tokenizer
from axisrl.runtime.records import message_of, record_to_json
from axisrl.runtime.rollout import RolloutRequest
from axisrl.runtime.thin import short_id
from axisrl.types import (
    GenerateResult,
    Message,
    Observation,
    Outcome,
    RolloutSummary,
    SamplingParams,
    Task,
)


class ConversationActor(Actor):
    """Tokenises conversations and stores their traces."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        super().__init__(boot, store)
        self._tokenizer = load_tokenizer(boot.model.path)
        self.started()

    async def play(self, request: RolloutRequest) -> RolloutSummary:
        """The task's conversation as a completed rollout of reward 1; one that is longer than
        ``rollout.max_context`` is ``cancelled``, so it is counted and not trained on."""
        conversation = converse(request.task, self._tokenizer)
        trace, limit = conversation.trace, self.boot.config.rollout.max_context
        longest = max(len(trace.ids(leaf)) for leaf in trace.leaves())
        fits = longest <= limit
        record = record_to_json(request.task, conversation.messages, {})
        return RolloutSummary(
            id=request.id,
            task_id=short_id(request.task.id),
            group=request.group,
            member=request.member,
            outcome=Outcome.COMPLETED if fits else Outcome.CANCELLED,
            reward=1.0 if fits else None,
            turns=sum(node.kind == "sampled" for node in trace),
            sampled_tokens=trace.sampled_tokens,
            prompt_tokens=sum(len(node.ids) for node in trace) - trace.sampled_tokens,
            trace=await self.put_bytes(trace.to_bytes()),
            record=await self.put_bytes(json.dumps(record).encode()),
            error="" if fits else f"{longest} tokens are over rollout.max_context {limit}",
        )


def converse(task: Task, tokenizer: ChatTokenizer) -> Conversation:
    """The conversation of a task's ``messages``. Raises ``ConfigError`` naming the task when they
    are no chat messages or hold no assistant turn to learn, and when the model's template does not
    end such a turn."""
    chats = _chats(task)
    conversation = Conversation(tokenizer)
    shown: list[Message] = []
    tools = tuple(task.data.get("tools", ()))
    for chat in chats:
        message = message_of(chat)
        if chat["role"] != "assistant" or chat.get("weight") == 0:
            shown.append(message)
            continue
        if not shown:
            raise _wrong(task, "an assistant turn to learn follows no other message")
        conversation.observe(Observation(messages=tuple(shown), tools=tools))
        ids = _said(conversation, message, tools, tokenizer)
        if not ids:
            raise _wrong(task, "the model's chat template writes an assistant turn without its end")
        conversation.act(_as_sampled(ids), SamplingParams(), seed=0)
        shown = []
    return conversation


def _chats(task: Task) -> Sequence[Mapping[str, Any]]:
    chats = task.data.get("messages")
    if not isinstance(chats, list) or not chats:
        raise _wrong(task, "it has no list of `messages`")
    for chat in chats:
        if not isinstance(chat, Mapping) or not isinstance(chat.get("content"), str):
            raise _wrong(task, f"a message is {chat!r}, not an object with role and content")
        if chat.get("role") not in ("system", "user", "assistant", "tool"):
            raise _wrong(task, f"a message has the role {chat.get('role')!r}")
    if not any(c["role"] == "assistant" and c.get("weight") != 0 for c in chats):
        raise _wrong(task, "it has no assistant turn to learn")
    return chats


def _said(
    conversation: Conversation,
    message: Message,
    tools: Sequence[Mapping[str, Any]],
    tokenizer: ChatTokenizer,
) -> list[int]:
    """Ids of what the template writes for ``message``, up to and with its end of turn; empty where
    that cannot be found. A template may prompt for more than it writes (an opened thought): the
    turn then begins with the message's own text."""
    history = [m.to_chat() for m in conversation.messages]
    listed = [dict(tool) for tool in tools]
    seen = tokenizer.render(history, listed, True)
    text = tokenizer.render([*history, message.to_chat()], listed, False)
    start = len(seen) if text.startswith(seen) else text.rfind(message.content.strip())
    ids = tokenizer.encode(text[start:]) if start >= 0 else []
    ends = [at for at, token in enumerate(ids) if token in tokenizer.stop_ids]
    return ids[: ends[0] + 1] if ends else []


def _as_sampled(ids: Sequence[int]) -> GenerateResult:
    return GenerateResult(
        ids=np.asarray(ids, np.int32),
        logprobs=np.zeros(len(ids), np.float32),
        versions=np.zeros(len(ids), np.int32),
        finish_reason="stop",
    )


def _wrong(task: Task, what: str) -> ConfigError:
    return ConfigError(
        f"task {task.id} of dataset cannot be learnt from: {what}",
        fix="give tasks `messages`: [{role, content}, ...] with an assistant turn, or replay a run "
        "with offline.rollouts=RUN_FOLDER",
    )
