"""mode: rollout on the stage: what training would learn from, and nothing learnt."""

import shutil

import pytest

from axisrl.config.load import stored_tree

ROLLOUT = ("mode=rollout", "eval=null")


def rows(stage):
    found = {p.stem: stage.rollouts(p.stem) for p in sorted((stage.dir / "rollouts").iterdir())}
    for each in found.values():
        for row in each:
            del row["summary"]["seconds"]
    return found


def traces(folder):
    from safetensors.numpy import load_file

    from axisrl.trace import Trace

    return {
        (path.stem, name): [_node(node) for node in Trace.from_bytes(blob.tobytes())]
        for path in sorted((folder / "traces").iterdir())
        for name, blob in load_file(path).items()
    }


def _node(node):
    arrays = (node.ids, node.logprobs, node.versions)
    return node.kind, node.seed, *(None if one is None else one.tolist() for one in arrays)


def test_rollouts_are_those_that_training_would_play_first(stage):
    played = stage(*ROLLOUT, "advantage=null", "loss=null", "trainer=null")
    assert (played.outcome, played.step) == ("completed", 4)
    assert [line["step"] for line in stage.metrics] == [1, 2, 3, 4]
    assert {"reward/mean", "rollout/tokens_mean", "time/rollout_s"} <= stage.metrics[0].keys()
    assert not [name for line in stage.metrics for name in line if name.startswith("loss/")]
    assert f"32 rollouts in {stage.dir / 'rollouts'}" in played.report
    mine, folder = rows(stage), stage.dir
    stage.dir = folder.with_name("trained")
    stage()
    first = rows(stage)["step-000001"]
    for row in first:
        row["advantage"] = None
    assert mine["step-000001"] == first
    one = {key: blob for key, blob in traces(stage.dir).items() if key[0] == "step-000001"}
    assert one.items() <= traces(folder).items()


def test_a_window_of_several_updates_is_written_update_by_update(stage):
    stage(*ROLLOUT, "train.updates_per_sync=2")
    assert [len(each) for each in rows(stage).values()] == [8, 8, 8, 8]
    assert ["reward/mean" in line for line in stage.metrics] == [True, False, True, False]


@pytest.mark.parametrize("per_sync", [1, 2])
def test_a_resumed_run_goes_on_at_the_next_window_bit_for_bit(stage, per_sync):
    settings = (*ROLLOUT, f"train.updates_per_sync={per_sync}")
    stage(*settings)
    whole, whole_traces = rows(stage), traces(stage.dir)
    shutil.rmtree(stage.dir / "checkpoints" / "step-000004")
    (stage.dir / "rollouts" / "step-000004.jsonl").write_text("half")
    assert stage(*settings, resume=True).outcome == "completed"
    assert (rows(stage), traces(stage.dir)) == (whole, whole_traces)


def test_what_is_played_is_learnt_from_offline(stage):
    stage(*ROLLOUT)
    played, folder = rows(stage), stage.dir
    stage.dir = folder.with_name("taught")
    stage("mode=train_offline", "eval=null", f"offline.rollouts={folder}")
    learnt = rows(stage)
    ids = {name: [row["summary"]["id"] for row in each] for name, each in played.items()}
    assert {name: [row["summary"]["id"] for row in each] for name, each in learnt.items()} == ids
    assert all(row["advantage"] is not None for each in learnt.values() for row in each)


def test_the_folder_says_what_the_run_did_not_use(stage):
    stage("mode=rollout", "eval=null")
    tree = stored_tree(stage.dir)
    assert [tree[key] for key in ("advantage", "loss", "trainer", "eval")] == [None] * 4
    assert not list((stage.dir / "checkpoints" / "step-000004").glob("trainer"))
