"""Pitfall 26: an option that does nothing is an error for whoever set it."""

import pytest

from axisrl.config.load import write_config
from axisrl.errors import ConfigError


@pytest.mark.parametrize(
    ("setting", "because"),
    [
        ("rollout.workers 3", "placement.kind inline"),
        ("placement.strategy 'spread'", "placement.kind inline"),
        ("placement.trainer_ranks 2", "placement.kind inline"),
        ("placement.engine_nodes 2", "placement.kind inline"),
        ("placement.rank_timeout_s 9.0", "placement.trainer_ranks 1"),
        ("kl.estimator 'k2'", "kl.coef 0.0"),
        ("kl.base 'old'", "kl.coef 0.0"),
        ("kl.reset_every 5", "kl.coef 0.0"),
        ("entropy.step 0.1", "entropy.target null"),
        ("entropy.max_coef 0.5", "entropy.target null"),
        ("sampler.memory 0.9", "sampler.strategy uniform"),
        ("sampler.easy_above 0.5", "sampler.strategy uniform"),
        ("sampler.floor 0.5", "sampler.strategy uniform"),
        ("schedule.max_staleness 3", "schedule.kind sync"),
        ("schedule.partial 'resume'", "schedule.kind sync"),
    ],
)
def test_an_option_that_does_nothing_is_refused_with_what_makes_it_idle(load, setting, because):
    with pytest.raises(ConfigError) as caught:
        load("toy/base", setting.replace(" ", "="))
    assert caught.value.message == f"{setting} has no effect with {because} (from command line)"


@pytest.mark.parametrize(
    "settings",
    [
        ("placement=ray", "rollout.workers=3", "placement.strategy=spread"),
        ("placement.engines=2",),
        ("placement.verifiers=2", "placement.rewards=1"),
        ("kl.coef=0.1", "kl.estimator=k2", "kl.reset_every=5"),
        ("entropy.target=1.0", "entropy.step=0.1"),
        ("sampler=low_success", "sampler.floor=0.5", "sampler.memory=0.9"),
        ("schedule=async", "schedule.max_staleness=3", "schedule.partial=resume"),
    ],
)
def test_an_option_that_does_something_is_welcome(load, settings):
    load("toy/base", *settings)


@pytest.mark.parametrize(
    "settings",
    [
        ("mode=rollout",),
        ("mode=eval", "eval.dataset=toy/tasks"),
        ("mode=mismatch", "offline.rollouts=there"),
        ("mode=train_offline", "offline.rollouts=there"),
    ],
)
def test_memory_is_not_shared_where_one_side_is_alone(load, tmp_path, settings):
    with pytest.raises(ConfigError, match=r"placement.colocate True has no effect with mode"):
        load("toy/base", *settings, "placement.colocate=true")
    recipe = tmp_path / "a.yaml"
    recipe.write_text("extends: toy/base\nplacement: {colocate: true}\n")
    assert not load(recipe, *settings).config.placement.colocate


def test_a_reference_that_is_not_there_cannot_be_reset(load):
    with pytest.raises(ConfigError, match=r"kl.reset_every 5 has no effect with kl.base old"):
        load("toy/base", "kl.coef=0.1", "kl.base=old", "kl.reset_every=5")


def test_an_idle_option_of_a_recipe_below_is_laid_back_so_that_the_run_loads_again(load, tmp_path):
    recipe = tmp_path / "a.yaml"
    recipe.write_text(
        "extends: toy/base\nkl: {coef: 0.1, estimator: k2}\nplacement: ray\nrollout: {workers: 3}\n"
    )
    loaded = load(recipe, "kl.coef=0", "placement=inline")
    assert (loaded.config.kl.estimator, loaded.config.rollout.workers) == ("k3", 1)
    again = load(write_config(loaded, tmp_path / "run"))
    assert again.config == loaded.config


LEARNS = "kl: {coef: 0.1, estimator: k2}\ntrain: {zero_std_groups: drop}\n"


@pytest.mark.parametrize("mode", ["rollout", "mismatch", "eval"])
def test_what_a_mode_does_not_use_of_a_recipe_is_laid_back(load, tmp_path, mode):
    recipe = tmp_path / "a.yaml"
    recipe.write_text(f"extends: toy/base\n{LEARNS}")
    loaded = load(recipe, f"mode={mode}", *(["eval.dataset=toy/tasks"] * (mode == "eval")))
    config = loaded.config
    assert (config.loss, config.advantage, config.kl.coef) == (None, None, 0)
    assert (config.trainer is None) == (mode != "mismatch")
    assert (config.dataset is None) == (mode == "eval")
    assert config.train.zero_std_groups == ("drop" if mode == "rollout" else "keep")
    assert load(write_config(loaded, tmp_path / "run")).config == config


@pytest.mark.parametrize(
    ("mode", "setting", "what"),
    [
        ("rollout", "loss.clip=0.3", "loss"),
        ("rollout", "kl.coef=0.1", "kl.coef 0.1"),
        ("eval", "sampler=no_easy", "sampler.strategy 'no_easy'"),
        ("mismatch", "schedule=async", "schedule.kind 'async'"),
    ],
)
def test_what_is_set_beside_a_mode_that_does_not_use_it_is_refused(load, mode, setting, what):
    with pytest.raises(ConfigError) as caught:
        load("toy/base", f"mode={mode}", setting, "eval.dataset=toy/tasks")
    assert f"{what} has no effect with mode {mode}" in str(caught.value)


OFFLINE = ("mode=train_offline", "dataset=core/tasks", "dataset.path=a.jsonl", "loss=core/sft")


@pytest.mark.parametrize(
    "setting",
    ["placement.engines 2", "placement.verifiers 1", "placement.rewards 1", "rollout.workers 3"],
)
def test_what_plays_rollouts_is_refused_in_a_run_that_plays_none(load, setting):
    with pytest.raises(ConfigError) as caught:
        load("toy/base", *OFFLINE, "placement=ray", setting.replace(" ", "="))
    assert f"{setting} has no effect with mode train_offline" in caught.value.message


def test_a_run_that_reads_rollouts_to_compare_plays_none_either(load):
    replay = ("mode=mismatch", "offline.rollouts=runs/a")
    with pytest.raises(ConfigError, match=r"engines 2 has no effect with offline.rollouts runs/a"):
        load("toy/base", *replay, "placement.engines=2")
    load("toy/base", "mode=mismatch", "placement.engines=2")


def test_learning_offline_with_an_evaluation_plays(load):
    load("toy/base", *OFFLINE, "eval.dataset=toy/tasks", "placement.engines=2")


def test_processes_that_judge_need_a_verifier(load):
    with pytest.raises(ConfigError, match=r"placement.verifiers 2 has no effect with verifiers"):
        load(
            "toy/base", "placement.verifiers=2", "verifiers.exact=null", "rewards.main=core/length"
        )


@pytest.mark.parametrize("mode", ["rollout", "eval"])
def test_ranks_and_gpus_of_trainers_are_refused_where_nothing_is_trained(load, mode):
    for setting in ("placement.trainer_ranks=2", "placement.gpus_trainer=1"):
        with pytest.raises(ConfigError, match=f"has no effect with mode {mode}"):
            load("toy/base", f"mode={mode}", "placement=ray", setting, "eval.dataset=toy/tasks")
