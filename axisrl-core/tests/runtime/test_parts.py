"""Parts of a run together: what the store holds, and saved rollouts as a source."""

import asyncio
import itertools
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from axisrl.errors import ConfigError
from axisrl.runtime.parts import RunParts
from axisrl.runtime.routing import experts_of
from axisrl.testing.fakes import ScriptedTrainer, scripted_experts

DEADLY = Path(__file__).with_name("deadly.py")
TURNS = "rewards.main={use: core/sum, turn_level: true, env_weights: {said: 0}}"
VALUE = ("advantage=stage/critic", "value={loss: stage/error}", "loss=stage/proximal")


@pytest.fixture
def left_over(monkeypatch):
    """Arrays the store still held when each run of the test ended."""
    found, close = [], RunParts.close

    async def counted(parts):
        found.append((await parts.store.stats()).items)
        await close(parts)

    monkeypatch.setattr(RunParts, "close", counted)
    return found


def test_every_array_of_a_window_is_released_whatever_models_score_it(
    stage, left_over, model_folder
):
    models = (*VALUE, "kl={coef: 0.1}", f"teacher.model={model_folder}")
    stage(*models, TURNS, "train.updates_per_sync=2", "train.zero_std_groups=drop")
    assert left_over == [0]


def test_what_workers_that_were_killed_kept_is_freed(stage, left_over, local_ray):
    there = ("placement=ray", "placement.cpus_per_actor=0.1", "store=deadly/store")
    stage(*there, "eval=null", "train.updates=1", plugins=[DEADLY])
    assert stage.metrics[-1]["recovery/replaced_rollout"] == 2
    assert left_over == [0]


def test_saved_rollouts_are_replayed_in_their_order_over_and_over(stage, left_over):
    stage(TURNS, "eval=null")
    saved = [row for step in range(1, 5) for row in stage.rollouts(f"step-{step:06d}")]
    folder, stage.dir = stage.dir, stage.dir.with_name("replayed")
    replay = ("mode=train_offline", f"offline.rollouts={folder}", "dataset=null", "eval=null")
    stage(*replay, "train.updates=6")
    again = [row for step in range(1, 7) for row in stage.rollouts(f"step-{step:06d}")]
    facts = [(row["summary"]["id"], row["summary"]["reward"], row["turn_rewards"]) for row in saved]
    assert facts == [
        (row["summary"]["id"], row["summary"]["reward"], row["turn_rewards"])
        for row in again[: len(saved)]
    ]
    assert [row["summary"]["id"] for row in again[len(saved) :]] == [
        row["summary"]["id"] for row in saved[:16]
    ]
    assert left_over == [0, 0]


def test_rollouts_with_routing_are_replayed_and_saved_without_handles(
    stage, left_over, monkeypatch
):
    read, given = [], ScriptedTrainer._replay
    monkeypatch.setattr(
        ScriptedTrainer,
        "_replay",
        lambda self, batches: (given(self, batches), read.extend(self.replayed)),
    )
    stage("rollout.routing=true", "eval=null", "train.updates=2")
    assert read and all((experts >= 0).all() for experts in read)
    for row in stage.rollouts("step-000001"):
        assert not {"trace", "record", "turn_rewards", "routing"} & row["summary"].keys()
    folder, stage.dir = stage.dir, stage.dir.with_name("replayed")
    replay = ("mode=train_offline", f"offline.rollouts={folder}", "dataset=null", "eval=null")
    stage(*replay, "train.updates=2")
    assert left_over == [0, 0]


def test_what_is_offered_last_is_what_engines_can_be_brought_to(stage, monkeypatch):
    """An offer ends the one before, and a reference that is reset takes one, too."""
    offered, offer = [], ScriptedTrainer.weight_update

    def noted(self, version):
        offered.append(version)
        return offer(self, version)

    monkeypatch.setattr(ScriptedTrainer, "weight_update", noted)
    stage("kl={coef: 0.1, reset_every: 2}", "train.updates_per_sync=2", "eval=null")
    assert offered == [2, 1, 4, 2]  # steps to the reference, versions to engines


def test_conversations_are_learnt_and_one_that_is_too_long_is_counted(stage, left_over, tmp_path):
    tasks = tmp_path / "talks.jsonl"
    short, long = ({"role": "assistant", "content": text} for text in ("Hello", "x" * 500))
    lines = [
        {"id": str(at), "messages": [{"role": "user", "content": "Hi"}, long if at == 2 else short]}
        for at in range(8)
    ]
    tasks.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    stage(
        "mode=train_offline",
        f"dataset={{use: core/tasks, path: {tasks}}}",
        "loss=core/sft",
        "advantage=core/reward",
        "rollout={group_size: 1, min_group_size: 1}",
        "train={updates: 2, batch_size: 4}",
        "eval=null",
    )
    first, second = stage.metrics
    assert first.get("rollout/cancelled", 0) + second.get("rollout/cancelled", 0) == 1
    assert first["reward/mean"] == second["reward/mean"] == 1
    assert left_over == [0]


def test_a_folder_without_rollouts_is_refused_before_anything_is_written(stage, tmp_path):
    with pytest.raises(ConfigError, match="nowhere holds no rollouts"):
        stage("mode=train_offline", f"offline.rollouts={tmp_path / 'nowhere'}")
    assert not stage.dir.exists()


def test_a_run_does_not_overwrite_the_rollouts_it_would_learn_from(stage):
    stage("eval=null")
    with pytest.raises(ConfigError, match=r"offline.rollouts is the folder of this run itself"):
        stage("mode=train_offline", f"offline.rollouts={stage.dir}", overwrite=True)
    assert stage.rollouts("step-000001")


@pytest.mark.parametrize("partial", ["resume", "restart_turn"])
def test_what_calls_told_of_experts_is_gone_with_their_episodes(stage, monkeypatch, partial):
    left, close = [], RunParts.close

    async def counted(parts):
        await parts.source.close()
        left.append(await parts.store.release_owner("engine-0"))
        await close(parts)

    monkeypatch.setattr(RunParts, "close", counted)
    slow = ("engine.latency_s=0.002", "schedule.kind=async", f"schedule.partial={partial}")
    stage("rollout.routing=true", *slow)
    assert left == [0]


def test_experts_are_released_with_what_they_were_kept_for(stage, left_over):
    stage("rollout.routing=true", TURNS)
    assert left_over == [0]


def test_a_trainer_reads_the_experts_of_its_batches_from_the_store(stage, monkeypatch):
    made, step, checked = ScriptedTrainer.__init__, ScriptedTrainer.step, []

    def remembers(trainer, config=None, context=None):
        made(trainer, config, context)
        trainer.store = context.services["store"]

    def reads(trainer, batches, loss):
        for batch in batches:
            with ThreadPoolExecutor(1) as other:  # a loop runs in this thread
                found = other.submit(asyncio.run, experts_of(trainer.store, batch, (0, 3))).result()
            for start, stop in itertools.pairwise(batch.row_starts.tolist()):
                wanted = scripted_experts(batch.columns["ids"][start:stop]).transpose(1, 0, 2)
                checked.append(np.array_equal(found[:, start:stop], wanted))
        return step(trainer, batches, loss)

    monkeypatch.setattr(ScriptedTrainer, "__init__", remembers)
    monkeypatch.setattr(ScriptedTrainer, "step", reads)
    stage("rollout.routing=true", "env.turns=2", "rollout.max_turns=2", "eval=null")
    assert len(checked) == 4 * 8 and all(checked)
