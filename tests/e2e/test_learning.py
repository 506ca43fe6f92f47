"""Every algorithm learns: the recipes of docs/learning-curves, as a user runs them."""

import json
from pathlib import Path

import pytest

CURVES = Path(__file__).parents[2] / "docs" / "learning-curves"
ALGORITHMS = ("grpo", "gspo", "cispo", "icepop", "ppo")


def rewards(lines):
    return [line["reward/mean"] for line in lines if "reward/mean" in line]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_reward_rises_from_its_start_above_four_fifths(make_run, algorithm):
    run = make_run(algorithm, recipe=(str(CURVES / f"{algorithm}.yaml"),))
    run.until(lambda: rewards(run.metrics())[-1:] > [0.8])
    assert rewards(run.metrics())[0] < 0.1


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_curves_of_the_page_show_the_same(algorithm):
    files = sorted((CURVES / "metrics").glob(f"{algorithm}-*.jsonl"))
    assert len(files) == 3
    for file in files:
        curve = rewards(json.loads(line) for line in file.read_text().splitlines())
        assert curve[0] < 0.1
        assert curve[-1] > 0.8
