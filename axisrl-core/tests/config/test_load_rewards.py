"""Rewards over the layers of a configuration: added, weighted and taken out by name."""

import pytest

from axisrl.config.load import RunRequest, load_run
from axisrl.errors import ConfigError
from axisrl.plugins.manager import PluginManager


@pytest.fixture
def load(toy, tmp_path):
    def load(*overrides, weights=""):
        settings = tmp_path / "settings.yaml"
        settings.write_text(f"rewards: {{again: core/sum}}\nreward_weights: {{{weights}}}\n")
        asked = RunRequest(recipe="toy/base", configs=(str(settings),), overrides=overrides)
        return load_run(asked, PluginManager.discover())

    return load


def test_a_reward_is_added_beside_the_one_of_the_defaults(load):
    assert set(load().config.rewards) == {"main", "again"}


def test_a_reward_is_taken_out_by_its_name(load):
    loaded = load("rewards.main=null")
    assert set(loaded.config.rewards) == {"again"}
    assert not [key for key in loaded.origins if key.startswith("rewards.main")]


def test_taking_out_the_last_reward_is_refused(load):
    with pytest.raises(ConfigError, match="rewards is empty"):
        load("rewards.main=null", "rewards.again=null")


def test_a_reward_goes_with_the_weight_that_a_lower_layer_gave_it(load):
    loaded = load("rewards.again=null", weights="again: 0.5")
    assert loaded.config.reward_weights == {}
    assert not [key for key in loaded.origins if key.startswith("reward_weights.again")]


def test_a_weight_set_beside_the_removal_of_its_reward_is_refused(load):
    with pytest.raises(ConfigError, match=r"reward_weights\.again weighs no reward"):
        load("rewards.again=null", "reward_weights.again=2")


def test_an_unknown_weight_says_where_it_was_set(load):
    with pytest.raises(ConfigError, match="did you mean again") as caught:
        load("reward_weights.agian=2")
    assert caught.value.fix == "change reward_weights.agian (from command line)"


@pytest.mark.parametrize(
    ("reward", "free", "key"),
    [
        ("{use: core/overlong, max_tokens: 1024, cache_tokens: 24}", 1000, "max_tokens"),
        ("{use: core/length, free_tokens: 64}", 64, "free_tokens"),
    ],
)
def test_a_price_on_a_length_that_no_rollout_reaches_is_refused(load, reward, free, key):
    limits = ("rollout.sampling.max_tokens=32", "rollout.max_turns=2")
    with pytest.raises(ConfigError) as caught:
        load(f"rewards.short={reward}", *limits)
    use = "core/overlong" if key == "max_tokens" else "core/length"
    assert caught.value.message == (
        f"rewards.short.{key}: {use} costs nothing up to {free} tokens, and a rollout samples at "
        "most 64 (from command line)"
    )
    load(f"rewards.short={reward}", *limits[:1], "rollout.max_turns=40")
