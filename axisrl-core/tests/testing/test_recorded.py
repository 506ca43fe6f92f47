import yaml

from axisrl.runfolder import RunFolder
from axisrl.runtime.spans import read_events
from axisrl.testing.recorded import recorded_run

pytest_plugins = ["axisrl.testing.fixtures"]


def test_a_recorded_run_is_a_finished_run_with_rising_reward(tmp_path):
    run = RunFolder(recorded_run(tmp_path))
    assert (run.name, run.state) == ("recorded", "completed")
    assert [line["reward/mean"] for line in run.metrics] == [0.25, 0.5, 0.75]


def test_it_has_rollouts_of_every_step_and_an_evaluation(tmp_path):
    run = RunFolder(recorded_run(tmp_path, steps=2))
    assert run.rollout_steps("step") == [1, 2]
    assert run.rollout_steps("eval") == [2]
    rows = run.rollouts("step", 2)
    assert len(rows) == 8
    assert sum(row["summary"]["reward"] for row in rows) / 8 == run.metrics[1]["reward/mean"]
    assert sum(row["advantage"] for row in rows) == 0


def test_its_config_and_events_can_be_read(tmp_path):
    folder = recorded_run(tmp_path, name="other")
    assert yaml.safe_load((folder / "config.yaml").read_text())["train"]["updates"] == 3
    spans = [event for event in read_events(folder / "events.jsonl") if event["ph"] == "X"]
    assert [span["name"] for span in spans[:3]] == ["rollout", "train", "sync"]


def test_the_fixtures_of_a_plugin_are_ready_made(recorded_run_dir, build_context, fake_clock):
    assert (recorded_run_dir / "manifest.json").is_file()
    assert build_context.clock is fake_clock
    assert build_context.clock() == 1000.0


def test_the_fixture_tokenizer_round_trips(char_tokenizer):
    assert char_tokenizer.decode(char_tokenizer.encode("7 + 1")) == "7 + 1"
