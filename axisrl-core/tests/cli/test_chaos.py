"""The whole command with runs that are only reported."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner

from axisrl.chaos.campaign import Baseline, Campaign
from axisrl.chaos.plan import Phase
from axisrl.chaos.verdict import Verdict
from axisrl.cli import chaos as command
from axisrl.cli.main import main


class Runs:
    """Stands for the runs; ``bad`` are the seeds that end badly."""

    def __init__(self) -> None:
        self.bad: set[int] = set()
        self.campaigns: list[Campaign] = []
        self.played: list[tuple[int, float, bool]] = []

    def play_baseline(self, campaign: Campaign) -> Baseline:
        self.campaigns.append(campaign)
        return Baseline(campaign.folder / "baseline", 10.0, [Phase(1, "train", 0.0, 4.0)])

    def play(self, campaign, baseline, seed, limit_s, *, keep) -> Verdict:
        self.played.append((seed, limit_s, keep))
        lost = 2 if seed in self.bad else 0
        return Verdict(
            seed=seed,
            planned=2,
            injected={"driver": 1, "engine": 1},
            missed=0,
            healed=2,
            lost=lost,
            doubled=0,
            hung=False,
            error="",
            starts=2,
            seconds=25.0,
            ratio=2.5,
            reward=0.5,
            baseline_reward=0.4,
            differences=(),
        )


@pytest.fixture
def runs(monkeypatch) -> Runs:
    fake = Runs()
    monkeypatch.setattr(Campaign, "play_baseline", lambda self: fake.play_baseline(self))
    monkeypatch.setattr(Campaign, "play", lambda self, *a, **k: fake.play(self, *a, **k))
    return fake


@pytest.fixture
def chaos(toy, output_root, runs):
    def chaos(*arguments: str):
        return CliRunner().invoke(main, ["chaos", *map(str, arguments)])

    return chaos


def test_one_run_is_judged_and_kept(chaos, runs):
    result = chaos("toy/base", "--kill", "driver", "--seed", "7")
    assert result.exit_code == 0, result.output
    line = "seed 7: good  injected 1 driver, 1 engine  healed 2  lost 0  doubled 0"
    assert line in result.output
    assert "+0.1 beside the run without faults" in " ".join(result.output.split())
    ((seed, _, keep),) = runs.played
    assert (seed, keep) == (7, True)


def test_one_bad_run_of_several_is_named_and_is_the_exit_code(chaos, runs):
    runs.bad = {4}
    result = chaos("toy/base", "--kill", "driver", "--seed", "3", "--runs", "3")
    assert result.exit_code == 1
    assert "seed 4: BAD" in result.output
    assert "2 rollouts lost" in result.output
    assert "3, 2 good" in result.output
    assert [(seed, keep) for seed, _, keep in runs.played] == [(3, False), (4, False), (5, False)]


def test_the_command_of_every_run_is_the_recipe_with_its_settings(chaos, runs, tmp_path):
    plugin = tmp_path / "more.py"
    plugin.write_text(
        "from axisrl.plugins import hookimpl\n\n\n@hookimpl\ndef axisrl_envs():\n    return []\n"
    )
    chaos("toy/base", "env.size=2", "--kill", "driver", "--plugin", plugin)
    (campaign,) = runs.campaigns
    assert campaign.command.words == ["toy/base", "env.size=2"]
    assert campaign.command.options == ["--plugin", str(plugin)]
    assert campaign.command.environ["OMP_NUM_THREADS"]


def test_ray_is_set_and_said_where_a_target_needs_a_process_of_its_own(chaos, runs):
    result = chaos("toy/base", "--kill", "worker,driver,engine")
    assert "placement.kind=ray: worker, engine must have processes of their own" in result.output
    (campaign,) = runs.campaigns
    assert campaign.command.words == ["toy/base", "placement.kind=ray"]
    assert campaign.chaos.targets == ["worker", "driver", "engine"]


def test_a_setting_that_is_for_ray_alone_needs_no_word_about_ray(chaos, runs):
    assert chaos("toy/base", "rollout.workers=2", "--kill", "worker").exit_code == 0


def test_verifiers_get_a_process_of_their_own_where_they_have_none(chaos, runs):
    chaos("toy/base", "--kill", "verifier")
    (campaign,) = runs.campaigns
    added = ["placement.kind=ray", "placement.verifiers=1"]
    assert campaign.command.words == ["toy/base", *added]


def test_by_default_everything_is_killed_that_the_run_has(chaos, runs):
    chaos("toy/base", "verifiers.exact=null")
    (campaign,) = runs.campaigns
    assert campaign.chaos.targets == ["engine", "trainer", "worker", "store", "driver"]


def test_a_limit_that_is_given_is_the_bound(chaos, runs):
    result = chaos("toy/base", "--kill", "driver", "--limit", "99")
    assert "takes longer than 99 s is hung" in result.output
    assert runs.played[0][1] == 99


def test_the_verdicts_are_written_for_machines(chaos, tmp_path):
    path = tmp_path / "verdicts.json"
    chaos("toy/base", "--kill", "driver", "--runs", "2", "--json", path)
    found = json.loads(path.read_text())
    assert found["good"] == 2
    assert [run["seed"] for run in found["runs"]] == [0, 1]
    assert found["baseline"]["seconds"] == 10


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["toy/base", "--kill", "gpu"], "choose among engine, trainer"),
        (["toy/base", "--kill", "value"], "--kill value: this run has none"),
        (["--kill", "driver"], "no recipe is given"),
        (["toy/base", "--kil", "driver"], "did you mean --kill?"),
        (["toy/base", "--kill", "driver", "env.sise=2"], "size"),
        (["toy/base", "--kill", "driver", "--baseline", "/nowhere"], "is no run's folder"),
    ],
)
def test_a_wrong_command_line_is_one_error_before_anything_runs_or_is_written(
    chaos, runs, output_root, arguments, told
):
    result = chaos(*arguments)
    assert result.exit_code == 2
    assert told in result.output
    assert (runs.campaigns, runs.played) == ([], [])
    assert list(output_root.iterdir()) == []


def test_what_was_found_is_written_while_others_still_run(chaos, runs, tmp_path, monkeypatch):
    path, written = tmp_path / "verdicts.json", threading.Event()
    real = command._write

    def write(*arguments):
        real(*arguments)
        written.set()

    def play(campaign, baseline, seed, limit_s, *, keep):
        if seed == 1:
            assert written.wait(60)
            assert [run["seed"] for run in json.loads(path.read_text())["runs"]] == [0]
        return runs.play(campaign, baseline, seed, limit_s, keep=keep)

    monkeypatch.setattr(command, "_write", write)
    monkeypatch.setattr(Campaign, "play", play)
    assert chaos("toy/base", "--kill", "driver", "--runs", "2", "--json", path).exit_code == 0
    assert len(json.loads(path.read_text())["runs"]) == 2


def test_a_folder_that_holds_something_is_left_alone(chaos, tmp_path):
    (tmp_path / "full").mkdir()
    Path(tmp_path / "full/file").touch()
    result = chaos("toy/base", "--kill", "driver", "--dir", tmp_path / "full")
    assert result.exit_code == 2
    assert "is not empty" in result.output
