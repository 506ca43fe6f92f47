"""Records: a rollout as a person reads it. Written by the rollout worker, read by the recorder;
JSON both ways."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any

from axisrl.types import Message, RolloutRow, RolloutSummary, Task, ToolCall, Verdict


def record_to_json(
    task: Task, messages: Sequence[Message], verdicts: Mapping[str, Verdict]
) -> dict[str, Any]:
    """Everything about a rollout that is text."""
    return {
        "task": {"id": task.id, "data": dict(task.data)},
        "messages": [message.to_chat() for message in messages],
        "verdicts": {name: dataclasses.asdict(verdict) for name, verdict in verdicts.items()},
    }


def row_of(
    step: int, summary: RolloutSummary, record: Mapping[str, Any], advantage: float | None
) -> RolloutRow:
    """A line of ``rollouts/*.jsonl`` as an object."""
    return RolloutRow(
        step=step,
        summary=summary,
        messages=tuple(message_of(entry) for entry in record["messages"]),
        advantage=advantage,
        verdicts={name: Verdict(**entry) for name, entry in record["verdicts"].items()},
    )


def row_to_line(row: RolloutRow, record: Mapping[str, Any]) -> str:
    """The JSON line of a row: its summary without handles, and the task it was given."""
    summary = dataclasses.asdict(row.summary)
    for handle in ("trace", "record", "turn_rewards", "routing"):
        del summary[handle]
    line = {"step": row.step, "summary": summary, "advantage": row.advantage, **record}
    return json.dumps(line, ensure_ascii=False)


def message_of(chat: Mapping[str, Any]) -> Message:
    """Inverse of :meth:`axisrl.types.Message.to_chat`."""
    calls = tuple(
        ToolCall(id=c["id"], name=c["function"]["name"], arguments=c["function"]["arguments"])
        for c in chat.get("tool_calls", ())
    )
    return Message(
        role=chat["role"],
        content=chat["content"],
        name=chat.get("name"),
        tool_call_id=chat.get("tool_call_id"),
        tool_calls=calls,
    )
