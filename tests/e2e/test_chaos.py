"""``axisrl chaos`` as a user types it: real runs on Ray, real kills."""

import json

import pytest

SHORT = ("train.updates=4", "checkpoint.every=2", "eval=null")
CHAOS = ("--kill", "engine,driver", "--every", "2", "--seed", "46")


def test_a_run_whose_engine_and_driver_are_killed_is_the_run_without_faults(command, tmp_path):
    pytest.importorskip("ray")
    verdicts = tmp_path / "verdicts.json"
    where = ("--dir", str(tmp_path / "chaos"), "--json", str(verdicts))
    code, output = command("chaos", "gsm8k/grpo-cpu", "--smoke", *SHORT, *CHAOS, *where).wait()
    assert code == 0, output[-3000:]
    (found,) = json.loads(verdicts.read_text())["runs"]
    assert found["injected"] == {"driver": 1, "engine": 1}
    assert (found["healed"], found["lost"], found["doubled"], found["hung"]) == (2, 0, 0, False)
    assert found["starts"] == 2
    assert found["differences"] == []
    assert found["reward"] == found["baseline_reward"]
    assert "seed 46: good" in output
