"""mode: mismatch: an engine whose log-probabilities are off by known amounts, beside a trainer."""

import json
import math
from pathlib import Path

import pytest

from axisrl.errors import ConfigError
from axisrl.testing.fakes import ScriptedTrainer

SHIFTED = Path(__file__).with_name("shifted.py")
SHIFTS = (0.0, 0.5, -1.0)
MISMATCH = ("mode=mismatch", "eval=null", "advantage=null", "loss=null")
OFF = (*MISMATCH, "engine=shifted/engine")


def measured(stage):
    """The one line of metrics, without the namespace, and the report."""
    (line,) = [entry for entry in stage.metrics if "mismatch/tokens" in entry]
    found = {k.removeprefix("mismatch/"): v for k, v in line.items() if k.startswith("mismatch/")}
    return found, json.loads((stage.dir / "reports" / "mismatch.json").read_text())


def test_known_differences_are_measured_over_all_trained_tokens(stage):
    assert stage(*OFF, plugins=[SHIFTED]).outcome == "completed"
    found, report = measured(stage)
    k3 = sum(math.exp(-shift) - 1 + shift for shift in SHIFTS) / 3
    assert found["tokens"] == 8 * 3
    assert found["nonfinite"] == 0
    assert found["abs_mean"] == pytest.approx(0.5, abs=1e-5)
    assert found["abs_max"] == pytest.approx(1.0, abs=1e-5)
    assert found["k1"] == pytest.approx(-0.5 / 3, abs=1e-5)
    assert found["k3"] == pytest.approx(k3, abs=1e-5)
    assert found["ratio_max"] == pytest.approx(math.e, rel=1e-5)
    assert found["ratio_min"] == pytest.approx(math.exp(-0.5), rel=1e-5)
    assert found["cosine"] < 1 - 1e-3
    assert report["all"] == {name: found[name] for name in report["all"]}
    assert (report["engine"], report["trainer"]) == ("shifted/engine", "stage/trainer")


def test_the_trainer_replays_the_engines_experts_where_they_are_kept(stage, monkeypatch):
    read, given = [], ScriptedTrainer._replay
    monkeypatch.setattr(
        ScriptedTrainer,
        "_replay",
        lambda self, batches: (given(self, batches), read.extend(self.replayed)),
    )
    assert stage(*MISMATCH, "rollout.routing=true").outcome == "completed"
    assert read and all((experts >= 0).all() for experts in read)


def test_the_worst_tokens_are_named_with_their_text_and_both_log_probabilities(stage):
    stage(*OFF, plugins=[SHIFTED])
    _, report = measured(stage)
    assert len(report["worst"]) == 20
    ids = {row["summary"]["id"] for row in stage.rollouts("step-000001")}
    for one in report["worst"][:8]:
        assert one["rollout"] in ids
        assert one["text"] == "<|im_end|>"  # the third token of every reply
        assert one["engine"] - one["trainer"] == pytest.approx(-1.0, abs=1e-5)
    assert [one["text"] for one in report["worst"][8:16]] == ["k"] * 8


def test_parts_by_position_temperature_and_version_hold_every_token(stage):
    stage(*OFF, plugins=[SHIFTED])
    found, report = measured(stage)
    for name in ("by_position", "by_temperature", "by_version"):
        assert sum(part["tokens"] for part in report[name]) == found["tokens"]
    assert found["temperature_1_abs_mean"] == found["abs_mean"]
    assert [part["versions"] for part in report["by_version"]] == [0]
    assert found["position_1_abs_mean"] == report["by_position"][0]["abs_mean"]


def test_an_engine_that_agrees_is_at_0_and_the_table_says_so(stage):
    result = stage(*MISMATCH)
    found, _ = measured(stage)
    assert found["abs_max"] < 1e-6
    assert found["k3"] == pytest.approx(0, abs=1e-9)
    header, first, *_, last = result.report
    assert header.split()[:4] == ["tokens", "at", "tokens", "abs_mean"]
    assert first.split()[:3] == ["all", str(found["tokens"]).removesuffix(".0"), "0"]
    assert last == f"the worst tokens are in {stage.dir / 'reports' / 'mismatch.json'}"


def test_saved_rollouts_are_compared_without_an_engine(stage):
    stage("mode=rollout", "eval=null", "engine=shifted/engine", plugins=[SHIFTED])
    folder, played = stage.dir, stage.rollouts("step-000001")
    stage.dir = folder.with_name("compared")
    stage(*MISMATCH, f"offline.rollouts={folder}", "engine=null", "env=null", "dataset=null")
    found, report = measured(stage)
    assert found["abs_max"] == pytest.approx(1.0, abs=1e-5)
    assert (report["engine"], report["rollouts"]) == (None, str(folder))
    assert {one["rollout"] for one in report["worst"]} <= {row["summary"]["id"] for row in played}


def test_a_comparison_without_an_engine_is_refused(stage):
    with pytest.raises(ConfigError, match="engine is required in mode mismatch: set engine"):
        stage(*MISMATCH, "engine=null")


def test_a_resumed_comparison_that_is_done_is_not_made_again(stage):
    stage(*MISMATCH)
    assert stage(*MISMATCH, resume=True).outcome == "completed"
    assert len(stage.metrics) == 1
