import json

from axisrl.runfolder import RunFolder
from axisrl.view.data import overview, to_json


def test_the_overview_names_every_step_that_has_rollouts(run_dir):
    facts = overview(RunFolder(run_dir))
    assert (facts["name"], facts["state"]) == ("demo", "completed")
    assert (facts["steps"], facts["evals"]) == ([1], [0, 3])
    assert len(facts["metrics"]) == 4


def test_the_overview_has_the_command_as_one_would_type_it(run_dir):
    assert overview(RunFolder(run_dir))["command"] == "axisrl run gsm8k/grpo-cpu"


def test_numbers_that_json_cannot_hold_become_null():
    text = to_json({"a": [float("nan"), float("inf")], "b": {"c": 1.5}})
    assert json.loads(text, parse_constant=lambda name: f"constant {name}") == {
        "a": [None, None],
        "b": {"c": 1.5},
    }


def test_a_nan_loss_does_not_spoil_the_overview(run_dir):
    facts = json.loads(to_json(overview(RunFolder(run_dir))))
    assert facts["metrics"][1]["loss/total"] is None
