"""Run modes on the tiny model: each reads what another wrote, by the command a user types."""

import json

import pytest

UPDATES = "train.updates=3"


def test_what_one_mode_wrote_another_reads(make_run, same_run):
    played = make_run("played", "mode=rollout", UPDATES)
    said = played.whole()
    assert "completed after 3 updates' worth of rollouts" in said
    assert f"offline.rollouts={played.dir}" in said
    assert [path.name for path in played.checkpoint.iterdir() if path.is_dir()] == []

    taught = make_run(
        "taught", "mode=train_offline", f"offline.rollouts={played.dir}", "eval=null", UPDATES
    )
    taught.whole()
    assert taught.series("reward/mean") == played.series("reward/mean")
    assert taught.traces() == played.traces()

    judged = make_run("judged", "mode=eval", f"model.name={taught.dir}", "eval.samples=2")
    said = judged.whole()
    (line,) = judged.metrics()
    low, high = line["eval/accuracy_low"], line["eval/accuracy_high"]
    assert (
        f"eval/accuracy {line['eval/accuracy']:.4f}, 95 % interval [{low:.4f}, {high:.4f}]" in said
    )
    rows = judged.rollouts()
    assert {name: len(each) for name, each in rows.items()} == {"eval-000000.jsonl": 8 * (1 + 2)}
    named = make_run("named", "mode=eval", f"model.name={taught.checkpoint}", "eval.samples=2")
    named.whole()
    assert named.rollouts() == rows

    compared = make_run("compared", "mode=mismatch", f"offline.rollouts={played.dir}")
    said = compared.whole()
    report = json.loads((compared.dir / "reports" / "mismatch.json").read_text())
    assert 0 < compared.series("mismatch/abs_max")[0] < 1e-4
    assert report["all"]["tokens"] == sum(
        row["summary"]["sampled_tokens"] for row in played.rollouts()["step-000001.jsonl"]
    )
    assert len(report["worst"]) == 20
    assert "abs_mean" in said


def test_a_mismatch_run_plays_its_own_window(make_run):
    run = make_run("mismatch", "mode=mismatch")
    run.whole()
    assert run.series("mismatch/abs_max")[0] < 1e-4
    assert run.series("mismatch/cosine")[0] == pytest.approx(1)
    assert len(run.rollouts()["step-000001.jsonl"]) == 32


def test_another_model_disagrees_with_what_was_played(make_run):
    played, taught = make_run("played", "mode=rollout", UPDATES), make_run("taught", UPDATES)
    played.whole()
    taught.whole()
    compared = make_run(
        "compared", "mode=mismatch", f"offline.rollouts={played.dir}", f"model.name={taught.dir}"
    )
    compared.whole()
    assert compared.series("mismatch/abs_max")[0] > 1e-2


def test_a_killed_rollout_run_goes_on_bit_for_bit(make_run):
    whole, killed = (make_run(n, "mode=rollout", "train.updates=40") for n in ("whole", "killed"))
    whole.whole()
    killed.kill_after(5)
    killed.resume()
    assert killed.rollouts() == whole.rollouts()
    assert killed.traces() == whole.traces()
    assert killed.untimed() == whole.untimed()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (("mode=eval", "eval=null"), "eval is required in mode eval: set eval"),
        (("mode=mismatch", "engine=null"), "engine is required in mode mismatch: set engine"),
        (("trainer=null",), "trainer is required in mode train: set trainer"),
        (("mode=rollout", "loss.clip_low=0.1"), "loss has no effect with mode rollout"),
    ],
)
def test_what_a_mode_lacks_is_said_in_one_line(make_run, settings, said):
    assert said in make_run("refused", *settings).refused()
