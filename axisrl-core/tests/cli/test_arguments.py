from __future__ import annotations

from dataclasses import replace

import pytest

from axisrl.cli.arguments import Arguments, checked_name, refuse_unknown, settled
from axisrl.errors import UsageError

EMPTY = Arguments(
    words=(),
    configs=(),
    plugins=(),
    no_plugins=(),
    loggers=(),
    run_dir=None,
    name=None,
    seed=None,
    resume=None,
    smoke=False,
    dry_run=False,
    plain=False,
    overwrite=False,
    allow_drift=False,
    show_samples=None,
)


def given(*words: str, **options: object) -> Arguments:
    return replace(EMPTY, words=words, **options)


def test_recipe_and_settings_may_stand_in_any_order():
    arguments = given("train.lr=1", "toy/base", "--env.size=2")
    assert arguments.recipe == "toy/base"
    assert arguments.overrides == ("train.lr=1", "--env.size=2")


def test_a_path_with_an_equals_sign_is_a_recipe():
    assert given("./lr=3/a.yaml").recipe == "./lr=3/a.yaml"


def test_name_and_seed_are_settings_after_the_others():
    arguments = given("seed=1", name="010", seed=2)
    assert arguments.overrides == ("seed=1", 'name="010"', "seed=2")


def test_two_recipes_are_an_error_that_names_both():
    with pytest.raises(UsageError, match="two recipes are given: a/b and c/d"):
        given("a/b", "c/d").recipe  # noqa: B018


@pytest.mark.parametrize("word", ["--frobnicate", "-v", "--train.lr"])
def test_an_unknown_option_is_an_error(word):
    with pytest.raises(UsageError, match=rf"no option {word}\n"):
        refuse_unknown(["a/b", "c.d=1", "--e=2", word], ["--smoke"])


def test_a_misspelt_option_names_the_nearest():
    with pytest.raises(UsageError, match="no option --smok; did you mean --smoke"):
        refuse_unknown(["--smok"], ["--seed", "--smoke"])


def test_the_option_of_the_root_is_pointed_to_its_place():
    with pytest.raises(UsageError) as caught:
        refuse_unknown(["--debug"], ["--smoke"])
    assert caught.value.fix == "it goes before the command: axisrl --debug run"


def test_a_setting_after_resume_is_a_setting():
    arguments = settled(given("toy/base", resume="train.lr=1", allow_drift=True))
    assert arguments.resume == ""
    assert arguments.overrides == ("train.lr=1",)
    assert arguments.recipe == "toy/base"


def test_a_run_after_resume_is_the_run():
    assert settled(given(resume="my-run")).resume == "my-run"


def test_resume_and_overwrite_exclude_each_other():
    with pytest.raises(UsageError, match="exclude each other"):
        settled(given(resume="a=1", overwrite=True))


def test_drift_is_allowed_only_to_a_resumed_run():
    with pytest.raises(UsageError, match="--allow-drift goes with --resume"):
        settled(given("toy/base", allow_drift=True))


@pytest.mark.parametrize("name", ["../up", "a/b", "", ".hidden", "a b", "-x"])
def test_a_name_has_to_be_one_folders_name(name):
    with pytest.raises(UsageError, match="cannot be a folder's name"):
        checked_name(name)


def test_a_plain_name_is_taken():
    assert checked_name("gsm8k-2.1_b") == "gsm8k-2.1_b"
