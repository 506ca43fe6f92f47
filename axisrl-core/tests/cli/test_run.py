"""The whole command with a driver that only writes what the real one writes first; dry runs are in
test_dry_run."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from click.testing import Result

from axisrl.config.text import read_tree


def refused(result: Result, code: int, *texts: str) -> None:
    assert result.exit_code == code, result.output
    assert result.stderr.startswith("error: ")
    assert "\nfix: " in result.stderr
    assert "Traceback" not in result.stderr
    for text in texts:
        assert text in result.stderr


def test_a_run_gets_its_folder_its_config_and_its_options(run, fake, output_root):
    result = run("toy/base", "--name", "one", "env.size=2", "--seed", "5", "--show-samples", "3")
    assert result.exit_code == 0, result.output
    loaded, options = fake.calls[0]
    assert loaded.config.seed == 5
    assert loaded.config.name == "one"
    assert loaded.recipe == "toy/base"
    assert options.run_dir == output_root / "one"
    assert (options.resume, options.plain, options.show_samples) == (False, True, 3)
    assert options.command[:5] == ("axisrl", "run", "toy/base", "--name", "one")
    text = (output_root / "one/config.yaml").read_text()
    assert "  size: 2  # command line\n" in text
    assert f"axisrl view {output_root / 'one'}" in result.output


def test_a_run_without_a_name_is_named_after_its_recipe(run, fake, output_root):
    assert run("toy/base").exit_code == 0
    (folder,) = output_root.iterdir()
    assert folder.name.startswith("toy-base-2")
    assert fake.calls[0][0].config.name == folder.name


def test_a_run_dir_is_used_as_it_is(run, fake, tmp_path):
    assert run("toy/base", "--run-dir", tmp_path / "deep/here").exit_code == 0
    assert fake.calls[0][1].run_dir == tmp_path / "deep/here"
    assert fake.calls[0][0].config.name == "here"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "completed after 2 updates\nall there is to say\n"),
        (("mode=rollout",), "completed after 2 updates' worth of rollouts\nall there is"),
        (("mode=eval", "eval.dataset=toy/tasks"), "completed\nall there is to say\n"),
    ],
)
def test_the_end_tells_what_the_mode_has_done(run, fake, words, said):
    assert said in run("toy/base", "--name", "a", *words).output


def test_an_interrupted_run_says_how_to_go_on(run, fake, output_root):
    fake.outcome = "interrupted"
    result = run("toy/base", "--name", "a")
    assert f"axisrl run --resume {output_root / 'a'}" in result.output
    assert result.exit_code == 130


def test_a_local_plugin_file_joins_the_run(run, fake, tmp_path):
    source = "from axisrl.plugins import EnvComponent, hookimpl\n\n@hookimpl\ndef axisrl_envs():\n"
    source += "    return [EnvComponent(name='mine', target='a.b:C')]\n"
    (tmp_path / "own.py").write_text(source)
    assert run("toy/base", "--plugin", tmp_path / "own.py", "env=mine").exit_code == 0
    assert fake.calls[0][0].config.env.use == "own/mine"


# bad input: one line, the fix, the right exit code, nothing written


def test_an_unknown_key(run, output_root):
    """Pitfall 26."""
    refused(run("toy/base", "engine.max_bach=3"), 2, "engine.max_bach; did you mean max_batch?")
    assert list(output_root.iterdir()) == []


def test_an_unknown_plugin(run):
    refused(run("nowhere/recipe"), 4, "'nowhere' is not installed", "pip install")


def test_an_unknown_plugin_option(run):
    refused(run("toy/base", "--plugin", "nowhere"), 4, "'nowhere' is not installed")


def test_a_plugin_that_is_left_out_but_needed(run):
    refused(run("toy/base", "--no-plugin", "toy"), 4, "toy")


def test_a_broken_plugin_that_the_run_names(run, site):
    site.add("broken", "raise RuntimeError('no')")
    refused(run("toy/base", "env=broken/world"), 4, "env: ", "broken", "--traceback")


def test_a_broken_plugin_that_the_run_does_not_name(run, site):
    """Pitfall 27."""
    site.add("broken", "raise RuntimeError('no')")
    assert run("toy/base").exit_code == 0


def test_an_ambiguous_name(run, site):
    site.add("rival")
    refused(run("toy/base", "env=world", "--plugin", "rival"), 2, "rival/world, toy/world")


def test_sizes_that_do_not_divide(run):
    """Pitfall 9."""
    refused(run("toy/base", "rollout.group_size=3"), 2, "batch_size 8", "group_size 3")


def test_a_group_of_one(run):
    refused(run("toy/base", "rollout.group_size=1"), 2, "group_size 1", "toy/group")


def test_no_recipe(run):
    refused(run(), 2, "no recipe is given")


def test_an_unknown_option(run):
    refused(run("toy/base", "--train.updates"), 2, "no option --train.updates")


def test_an_option_with_a_wrong_value_is_a_usage_error_too(run):
    result = run("toy/base", "--seed", "x")
    assert result.exit_code == 2
    assert "'x' is not a valid integer" in result.stderr


def test_an_existing_run_folder_is_left_alone(run, fake, output_root):
    run("toy/base", "--name", "a")
    before = (output_root / "a/config.yaml").read_text()
    result = run("toy/base", "--name", "a", "env.size=9")
    refused(result, 2, "exists (completed)", f"axisrl run --resume {output_root / 'a'}")
    assert "axisrl run toy/base --name a env.size=9 --overwrite" in result.stderr
    assert (output_root / "a/config.yaml").read_text() == before
    assert len(fake.calls) == 1


def test_a_run_without_a_checkpoint_is_not_offered_to_be_resumed(run, fake, output_root):
    fake.checkpoints = []
    run("toy/base", "--name", "a")
    result = run("toy/base", "--name", "a")
    refused(result, 2, "exists", "--overwrite")
    assert "--resume" not in result.stderr


def test_overwrite_deletes_the_run_first(run, fake, output_root):
    run("toy/base", "--name", "a")
    (output_root / "a/old.txt").touch()
    assert run("toy/base", "--name", "a", "--overwrite").exit_code == 0
    assert not (output_root / "a/old.txt").exists()
    assert len(fake.calls) == 2


def test_overwrite_deletes_nothing_when_the_configuration_is_wrong(run, output_root):
    run("toy/base", "--name", "a")
    refused(run("toy/base", "--name", "a", "--overwrite", "envv.size=1"), 2, "envv")
    assert (output_root / "a/manifest.json").is_file()


def test_overwrite_never_deletes_what_is_no_run(run, tmp_path):
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis/chapter.md").touch()
    result = run("toy/base", "--run-dir", tmp_path / "thesis", "--overwrite")
    refused(result, 2, "holds something that is no run")
    assert (tmp_path / "thesis/chapter.md").exists()


def test_overwrite_spares_a_run_that_goes_on(run, output_root):
    run("toy/base", "--name", "a")
    facts = {"state": "running", "pid": os.getpid(), "host": os.uname().nodename}
    (output_root / "a/manifest.json").write_text(json.dumps(facts))
    refused(run("toy/base", "--name", "a", "--overwrite"), 2, "is running", str(os.getpid()))


def test_a_file_in_the_place_of_the_run_folder(run, tmp_path):
    (tmp_path / "file").touch()
    refused(run("toy/base", "--run-dir", tmp_path / "file"), 2, "no run")


@pytest.mark.parametrize("blocked", ["file", "/proc/nowhere"])
def test_a_run_folder_that_cannot_be_made(run, tmp_path, monkeypatch, blocked):
    (tmp_path / "file").touch()
    monkeypatch.setenv("AXISRL_OUTPUT_DIR", str(tmp_path / blocked))
    for more in ([], ["--dry-run"]):
        refused(run("toy/base", *more), 2, "cannot be made", "AXISRL_OUTPUT_DIR")


# resume


def test_resume_takes_the_configuration_of_the_run(run, fake, output_root):
    run("toy/base", "--name", "a", "env.size=2", "loggers=[core/jsonl]")
    before = (output_root / "a/config.yaml").read_text()
    for words in (
        ["--resume", "a"],
        ["--resume", output_root / "a"],
        [output_root / "a", "--resume"],
    ):
        assert run(*words).exit_code == 0
        loaded, options = fake.calls[-1]
        assert loaded.config == fake.calls[0][0].config
        assert loaded.recipe == "toy/base"
        assert (options.resume, options.run_dir) == (True, output_root / "a")
    assert (output_root / "a/config.yaml").read_text() == before


def test_resume_with_the_command_of_before(run, fake):
    run("toy/base", "--name", "a", "env.size=2")
    assert run("toy/base", "--name", "a", "env.size=2", "--resume").exit_code == 0
    assert fake.calls[1][1].resume is True


def test_resume_with_other_settings_lists_them(run, output_root):
    run("toy/base", "--name", "a")
    result = run("--resume", "a", "env.size=2", "train.updates=20")
    refused(result, 2, "env.size: 5 -> 2", "train.updates: 10 -> 20", "--allow-drift")


def test_an_option_left_behind_with_its_component_is_told_before_anything_starts(run, sphere):
    for asked in (["--name", "a"], ["--name", "b", "--dry-run"]):
        result = run("toy/base", "env=round/sphere", *asked)
        assert result.stderr.startswith("note: env.size is 3, the default of round/sphere: 5 ")


def test_allow_drift_goes_on_with_other_settings_and_says_so(run, fake, output_root):
    run("toy/base", "--name", "a")
    result = run("--resume", "a", "train.updates=20", "--allow-drift")
    assert result.exit_code == 0
    assert "drift: train.updates: 10 -> 20" in result.stderr
    assert fake.calls[1][0].config.train.updates == 20
    assert fake.calls[1][1].allow_drift is True
    assert read_tree(output_root / "a/config.yaml")["train"]["updates"] == 20


def test_resume_needs_no_plugin_option_again(run, fake, tmp_path):
    source = "from axisrl.plugins import hookimpl\n\n@hookimpl\ndef axisrl_run_started(run): ...\n"
    (tmp_path / "watcher.py").write_text(source)
    run("toy/base", "--name", "a", "--plugin", tmp_path / "watcher.py")
    (tmp_path / "watcher.py").unlink()
    assert run("--resume", "a").exit_code == 0
    first, resumed = fake.plugins
    assert resumed == first
    assert "watcher" in {plugin["name"] for plugin in resumed["plugins"]}


@pytest.mark.parametrize("text", ["{", "5", "{}", '{"plugins": {"api": 1}}'])
def test_resume_of_a_run_whose_manifest_is_damaged_names_the_file(run, output_root, text):
    run("toy/base", "--name", "a")
    (output_root / "a/manifest.json").write_text(text)
    refused(run("--resume", "a"), 2, f"{output_root / 'a/manifest.json'} does not tell", "anew")


def test_resume_without_a_checkpoint(run, fake):
    fake.checkpoints = []
    run("toy/base", "--name", "a")
    refused(run("--resume", "a"), 2, "no checkpoint to go on from", "--overwrite")
    refused(run("toy/base", "--name", "a", "--resume"), 2, "no checkpoint to go on from")


def test_resume_with_an_unfinished_checkpoint_names_it(run, fake, output_root):
    run("toy/base", "--name", "a")
    (output_root / "a/checkpoints/step-000002/COMPLETE").unlink()
    refused(run("--resume", "a"), 2, "unfinished: step-000002")


def test_resume_of_a_run_that_is_not_there(run):
    refused(run("--resume", "none"), 2, "there is no run in")


@pytest.mark.parametrize("words", [["--resume"], ["toy/base", "--resume"]])
def test_resume_without_saying_which(run, words):
    refused(run(*words), 2, "which run?")


def test_smoke_settings_are_used(run, fake):
    assert run("toy/small", "--smoke").exit_code == 0
    assert fake.calls[0][0].config.train.updates == 2


def test_a_preset_is_laid_over_the_recipe(run, fake, output_root):
    assert run("toy/base", "--name", "a", "--config", "toy/wide").exit_code == 0
    assert fake.calls[0][0].config.rollout.group_size == 8
    text = (output_root / "a/config.yaml").read_text()
    assert "  group_size: 8  # preset toy/wide\n" in text
    assert run("--resume", "a").exit_code == 0
    assert fake.calls[1][0].config == fake.calls[0][0].config


def test_a_preset_without_a_recipe(run):
    refused(run("toy/wide"), 2, "is a preset", "axisrl run RECIPE --config toy/wide")


def test_a_recipe_as_a_preset(run):
    refused(run("toy/base", "--config", "toy/small"), 2, "toy/small is a whole recipe")


def test_a_misspelt_preset(run):
    refused(run("toy/base", "--config", "toy/wied"), 2, "did you mean 'wide'?")


def test_a_preset_of_a_plugin_that_is_not_installed(run):
    refused(run("toy/base", "--config", "nowhere/wide"), 4, "'nowhere'", "pip")


def test_a_config_file_that_is_not_there(run, tmp_path):
    refused(run("toy/base", "--config", Path(tmp_path / "none.yaml")), 2, "none.yaml")


def test_a_logger_is_added(run, fake):
    assert run("toy/base", "--logger", "wandb").exit_code == 0
    assert fake.calls[0][0].config.loggers[-1].use == "core/wandb"


def test_a_plan_of_faults_reaches_the_driver_and_a_wrong_one_does_not(run, fake, tmp_path):
    plan = tmp_path / "plan.json"
    plan.write_text('[{"step": 1, "phase": "train", "edge": "before"}]')
    assert run("toy/base", "--faults", plan).exit_code == 0
    assert [fault.phase for fault in fake.calls[0][1].faults.faults] == ["train"]
    plan.write_text("[{}]")
    refused(run("toy/base", "--overwrite", "--faults", plan), 2, "plan.json is no plan of faults")
