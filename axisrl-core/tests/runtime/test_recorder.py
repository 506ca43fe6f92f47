"""What is written of a step, and what a resumed run forgets."""

import asyncio
import json

import numpy as np
import pytest

from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.runtime.recorder import RecorderActor
from axisrl.runtime.records import record_to_json
from axisrl.types import BuildContext, Message, Outcome, RolloutSummary, Task


@pytest.fixture
def recorder(tmp_path):
    actor = RecorderActor.__new__(RecorderActor)
    actor.store = MemoryHandleStore(NoConfig(), BuildContext(run_dir=tmp_path))
    actor._rollouts, actor._traces = tmp_path / "rollouts", tmp_path / "traces"
    actor._rollouts.mkdir()
    actor._traces.mkdir()
    return actor


def write(recorder, question, count=1, kind="step", step=1):
    async def put_and_write():
        record = record_to_json(
            Task(id="t", data={"question": question}), [Message(role="user", content=question)], {}
        )
        summaries = [
            RolloutSummary(
                id=f"r{member}",
                task_id="t",
                group=0,
                member=member,
                outcome=Outcome.COMPLETED,
                reward=0.0,
                record=await recorder.store.put(
                    np.frombuffer(json.dumps(record).encode(), np.uint8), owner="w"
                ),
            )
            for member in range(count)
        ]
        return await recorder.write(kind, step, summaries, {"r0": 0.5})

    return asyncio.run(put_and_write())


def lines(recorder, name):
    text = (recorder._rollouts / f"{name}.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def test_a_row_has_its_task_messages_and_advantage(recorder):
    write(recorder, "2 + 2?")
    (row,) = lines(recorder, "step-000001")
    assert row["task"] == {"id": "t", "data": {"question": "2 + 2?"}}
    assert row["messages"] == [{"role": "user", "content": "2 + 2?"}]
    assert (row["advantage"], row["summary"]["reward"]) == (0.5, 0.0)


def test_text_that_is_not_utf8_is_kept_and_ends_no_run(recorder):
    write(recorder, "é \ud800")
    (row,) = lines(recorder, "step-000001")
    assert row["messages"][0]["content"] == "é \ud800"


def test_only_a_few_rows_go_back_to_the_driver_and_all_are_written(recorder):
    """Rollout tables stay small however large the step is."""
    assert len(write(recorder, "2 + 2?", count=100)) == 8
    assert len(lines(recorder, "step-000001")) == 100


def test_a_resumed_run_forgets_the_files_of_later_steps_only(recorder):
    for kind, step in (("step", 2), ("eval", 2), ("step", 3), ("eval", 4)):
        write(recorder, "2 + 2?", kind=kind, step=step)
    recorder.forget_after(2)
    kept = sorted(path.name for path in recorder._rollouts.iterdir())
    assert kept == ["eval-000002.jsonl", "step-000002.jsonl"]
