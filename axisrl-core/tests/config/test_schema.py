"""Sizes of a run that could not work are refused before anything starts."""

import pytest

from axisrl.config.schema import RunConfig, Use
from axisrl.config.validate import validate
from axisrl.errors import ConfigError

ANY = dict.fromkeys(("dataset", "env", "advantage", "loss", "engine", "trainer"), "a/b")


def config(**sections):
    return validate(RunConfig, {"model": "m", **ANY, **sections})


@pytest.mark.parametrize(
    ("section", "key", "value"),
    [
        ("rollout", "group_size", 0),
        ("rollout", "min_group_size", 0),
        ("rollout", "max_turns", 0),
        ("rollout", "max_context", 0),
        ("rollout", "workers", 0),
        ("rollout", "max_inflight", 0),
        ("rollout", "boot_timeout_s", 0),
        ("rollout", "run_timeout_s", -1),
        ("rollout", "score_timeout_s", 0),
        ("rollout", "max_failed_fraction", 7),
        ("train", "updates", -1),
        ("train", "batch_size", 0),
        ("train", "updates_per_sync", 0),
        ("train", "max_tokens_per_batch", 0),
        ("checkpoint", "every", -1),
        ("checkpoint", "keep", 0),
        ("placement", "sync_timeout_s", 0),
        ("placement", "gpus_engine", -1),
        ("placement", "cpus_per_actor", -1),
        ("placement", "engines", 0),
        ("placement", "engine_nodes", 0),
    ],
)
def test_a_size_that_cannot_work_is_refused_with_its_key(section, key, value):
    with pytest.raises(ConfigError, match=rf"^{section}: {key} {value}"):
        config(**{section: {key: value}})


@pytest.mark.parametrize(("key", "value"), [("every", -1), ("tasks", -1), ("samples", 0)])
def test_an_evaluation_that_cannot_work_is_refused_with_its_key(key, value):
    with pytest.raises(ConfigError, match=rf"^eval: {key} {value} is below"):
        config(eval={"dataset": "a/b", key: value})


@pytest.mark.parametrize(("key", "value"), [("temperature", -0.5), ("top_k", -1), ("top_p", 0)])
def test_sampling_that_cannot_work_is_refused_with_its_key(key, value):
    with pytest.raises(ConfigError, match=rf"^rollout\.sampling: {key} {value}"):
        config(rollout={"sampling": {key: value}})


def test_a_batch_too_small_for_the_longest_rollout_is_refused_with_both_numbers():
    sizes = {"rollout": {"max_context": 512}, "train": {"max_tokens_per_batch": 511}}
    config(**sizes)
    sizes["train"]["max_tokens_per_batch"] = 510
    with pytest.raises(ConfigError, match=r"max_tokens_per_batch 510 .* rollout.max_context 512"):
        config(**sizes)


def test_without_settings_a_run_has_one_reward():
    assert {name: use.use for name, use in config().rewards.items()} == {"main": "core/sum"}


def test_a_run_without_a_reward_is_refused():
    with pytest.raises(ConfigError, match="rewards is empty: a rollout would earn nothing"):
        config(rewards={})


def test_a_weight_for_an_unknown_reward_is_refused_with_the_nearest_name():
    rewards = {"main": "a/b", "length": "a/c"}
    assert config(rewards=rewards, reward_weights={"length": 0.5}).reward_weights["length"] == 0.5
    with pytest.raises(ConfigError) as caught:
        config(rewards=rewards, reward_weights={"lenght": 0.5})
    assert caught.value.message == (
        "reward_weights.lenght weighs no reward, the run has length, main; did you mean length?"
    )


def test_a_window_warms_up_the_value_model_whole_or_not_at_all():
    train = {"updates": 6, "updates_per_sync": 2}
    assert config(train=train, value={"loss": "a/b", "warmup_updates": 2}).value.warmup_updates == 2
    with pytest.raises(ConfigError, match=r"value.warmup_updates 3 is not a multiple of .* 2"):
        config(train=train, value={"loss": "a/b", "warmup_updates": 3})


def test_a_warm_up_leaves_updates_for_the_policy():
    with pytest.raises(ConfigError, match=r"value.warmup_updates 4 leaves none of train.updates 4"):
        config(train={"updates": 4}, value={"loss": "a/b", "warmup_updates": 4})
    assert config(train={"updates": 0}, value={"loss": "a/b"}).train.updates == 0


OFFLINE = {"mode": "train_offline"}
ALONE = {"group_size": 1, "min_group_size": 1}


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        ({"offline": {"rollouts": "run"}}, "offline.rollouts has no effect unless mode is"),
        ({**OFFLINE, "sampler": "low_success"}, "learns from rollouts that are played"),
        ({**OFFLINE, "train": {"zero_std_groups": "drop"}}, "would drop every conversation"),
        (
            {
                "train": {"zero_std_groups": "drop"},
                "rollout": {"group_size": 1, "min_group_size": 1},
            },
            "would drop every group of one rollout",
        ),
    ],
)
def test_what_does_nothing_in_a_mode_is_refused(keys, reason):
    with pytest.raises(ConfigError, match=reason):
        config(**keys)


def test_saved_rollouts_may_drop_groups_without_variance():
    replay = config(
        **OFFLINE, offline={"rollouts": "run"}, train={"zero_std_groups": "drop"}, dataset=None
    )
    assert replay.train.zero_std_groups == "drop"


PLAY = dict.fromkeys(("dataset", "env", "engine"), "a/b")
MODES = {
    "train": ANY,
    "rollout": PLAY,
    "eval": {"env": "a/b", "engine": "a/b", "eval": {"dataset": "a/b"}},
    "mismatch": {**PLAY, "trainer": "a/b"},
}


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_demands_what_it_uses_and_no_more(mode):
    assert set(validate(RunConfig, {"model": "m", "mode": mode, **MODES[mode]}).needs) == set(
        MODES[mode]
    )
    for name in MODES[mode]:
        left = {key: value for key, value in MODES[mode].items() if key != name}
        with pytest.raises(ConfigError) as caught:
            validate(RunConfig, {"model": "m", "mode": mode, **left})
        assert caught.value.message == f"{name} is required in mode {mode}: set {name}"


def test_saved_rollouts_take_the_place_of_what_would_play_them():
    read = {"mode": "mismatch", "trainer": "a/b", "offline": {"rollouts": "run"}}
    assert validate(RunConfig, {"model": "m", **read}).needs == ("trainer",)


def test_an_evaluation_of_what_is_learnt_offline_needs_an_engine():
    taught = {**OFFLINE, "eval": {"dataset": "a/b"}}
    assert {"env", "engine"} <= set(config(**taught).needs)
    with pytest.raises(ConfigError, match="engine is required in mode train_offline"):
        config(**taught, engine=None)


def test_nothing_is_learnt_from_an_evaluation_so_it_may_sample_as_it_likes():
    cut = {"rollout": {"sampling": {"top_p": 0.9}}, "eval": {"dataset": "a/b"}}
    assert config(mode="eval", **cut).rollout.sampling.top_p == 0.9
    with pytest.raises(ConfigError, match="top_p, top_k and min_p cut"):
        config(mode="rollout", **cut)


def test_a_mode_without_a_trainer_asks_nothing_of_its_batches():
    sizes = {"rollout": {"max_context": 512}, "train": {"max_tokens_per_batch": 64}}
    config(mode="rollout", **sizes)
    with pytest.raises(ConfigError, match="max_tokens_per_batch 64 is too small"):
        config(mode="mismatch", **sizes)


def test_taking_turns_with_memory_and_working_at_once_exclude_each_other():
    config(placement={"colocate": True})
    with pytest.raises(
        ConfigError, match=r"take turns, and schedule.kind async keeps both at work"
    ):
        config(placement={"colocate": True}, schedule="async")


@pytest.mark.parametrize("share", [{"gpus_engine": 2}, {"gpus_engine": 1, "gpus_trainer": 1}])
def test_what_shares_a_gpu_takes_no_more_than_one(share):
    config(placement={"colocate": True, "gpus_engine": 1})
    config(placement={"gpus_engine": 1, "gpus_trainer": 1})
    with pytest.raises(ConfigError, match=r"^placement: colocate shares single GPUs, and gpus_"):
        config(placement={"colocate": True, **share})


def test_an_engine_on_several_machines_shares_no_gpu_and_holds_something_on_each():
    config(placement={"engine_nodes": 2})
    with pytest.raises(ConfigError, match=r"^placement: colocate shares single GPUs, and engine_"):
        config(placement={"engine_nodes": 2, "colocate": True})
    nothing = {"engine_nodes": 2, "cpus_per_actor": 0}
    with pytest.raises(ConfigError, match="set cpus_per_actor or gpus_engine above 0"):
        config(placement=nothing)
    config(placement={**nothing, "gpus_engine": 8})


@pytest.mark.parametrize("use", ["gsm8k/math", "gsm8k/math@1"])
def test_which_component_is_used_does_not_depend_on_a_version_that_is_pinned(use):
    assert Use(use=use).id == "gsm8k/math"
