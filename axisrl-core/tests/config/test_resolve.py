from __future__ import annotations

import pytest

from axisrl.config.resolve import check, component_uses, resolve
from axisrl.config.schema import RunConfig
from axisrl.config.validate import validate
from axisrl.errors import ConfigError, PluginError
from axisrl.plugins.manager import PluginManager

TREE = {
    "model": "nano",
    "dataset": "toy/tasks",
    "env": "toy/world",
    "advantage": "toy/group",
    "loss": "toy/clip",
    "engine": "toy/engine",
    "trainer": "toy/trainer",
}


def config_of(**keys: object) -> RunConfig:
    return validate(RunConfig, {**TREE, **keys})


def resolved(**keys: object):
    return resolve(config_of(**keys), PluginManager.discover(), {"env.use": "my.yaml"})


def checked(**keys: object) -> list[str]:
    config = config_of(**keys)
    return [p.message for p in check(config, resolve(config, PluginManager.discover(), {}))]


def test_every_use_is_found_with_its_key_and_kind():
    config = config_of(
        verifiers={"v": "toy/exact"},
        corrections=["toy/mask"],
        value={"loss": "toy/value", "trainer": "toy/trainer"},
        teacher={"model": "big", "engine": "toy/engine"},
        eval={"dataset": "toy/tasks"},
    )
    found = [(path, kind) for path, kind, _ in component_uses(config)]
    assert found == [
        ("dataset", "dataset"),
        ("env", "env"),
        ("verifiers.v", "verifier"),
        ("rewards.main", "reward"),
        ("advantage", "advantage"),
        ("loss", "loss"),
        ("corrections.0", "correction"),
        ("value.loss", "loss"),
        ("value.trainer", "trainer"),
        ("teacher.engine", "engine"),
        ("packer", "packer"),
        ("store", "store"),
        ("engine", "engine"),
        ("trainer", "trainer"),
        ("loggers.0", "logger"),
        ("loggers.1", "logger"),
        ("eval.dataset", "dataset"),
    ]


def test_options_get_the_defaults_of_the_component(toy):
    by_path = {used.path: used for used in resolved(env={"use": "toy/world", "size": 7})}
    assert by_path["env"].options == {"size": 7, "shape": "flat"}
    assert by_path["env"].id == "toy/world"


def test_a_bare_name_is_found_among_the_plugins_of_the_run(toy):
    by_path = {used.path: used for used in resolved(env="world")}
    assert by_path["env"].id == "toy/world"


def test_a_pinned_version_stays_pinned(toy):
    by_path = {used.path: used for used in resolved(verifiers={"v": "toy/exact@2"})}
    assert by_path["verifiers.v"].id == "toy/exact@2"


def test_another_version_of_a_verifier_is_refused(toy):
    with pytest.raises(ConfigError, match=r"^verifiers\.v: toy/exact is installed in version 2"):
        resolved(verifiers={"v": "toy/exact@1"})


def test_an_unknown_component_names_key_origin_and_nearest(toy):
    with pytest.raises(ConfigError) as caught:
        resolved(env="toy/wrld")
    assert caught.value.message == (
        "env: toy has no env 'wrld'; did you mean 'world'? (from my.yaml)"
    )


def test_an_unknown_plugin_names_key_and_origin(toy):
    with pytest.raises(PluginError) as caught:
        resolved(env="nowhere/world")
    assert caught.value.message == "env: plugin 'nowhere' is not installed (from my.yaml)"


def test_a_bare_name_of_two_plugins_is_ambiguous(toy, site):
    site.add("rival")
    with pytest.raises(
        ConfigError, match=r"^env: env 'world' is ambiguous: rival/world, toy/world"
    ):
        resolved(env="world", plugins=["rival"])


def test_an_option_of_a_component_is_checked_under_its_key(toy):
    with pytest.raises(ConfigError, match=r"^env: size 0 is below 1"):
        resolved(env={"use": "toy/world", "size": 0})


def test_plugins_that_are_not_mentioned_stay_inactive(toy, site):
    site.add("bystander", "raise SystemExit('never import me')")
    manager = PluginManager.discover()
    resolve(config_of(), manager, {})
    states = {record.name: record.state for record in manager.records()}
    assert states["toy"] == "active"
    assert states["bystander"] == "found"


def test_what_fits_has_no_problems(toy):
    assert checked() == []


def test_a_group_of_one_is_refused_for_a_group_relative_advantage(toy):
    rollout = {"group_size": 1, "min_group_size": 1}
    (problem,) = checked(rollout=rollout)
    assert problem.startswith("rollout.group_size 1 leaves toy/group nothing to compare with")
    assert checked(rollout=rollout, advantage="toy/alone") == []


def test_a_group_that_may_shrink_to_one_is_refused_for_a_group_relative_advantage(toy):
    (problem,) = checked(rollout={"min_group_size": 1})
    assert problem.startswith("rollout.min_group_size 1 lets a group shrink to one rollout")
    assert checked(rollout={"min_group_size": 1}, advantage="toy/alone") == []


def test_a_store_of_one_process_is_refused_with_ray(toy):
    (problem,) = checked(store="core/memory", placement="ray")
    assert problem.startswith("store core/memory stays within one process")
    assert checked(store="core/memory") == []


def test_a_store_of_a_cluster_is_refused_in_one_process(toy):
    (problem,) = checked(store="core/ray")
    assert problem.startswith("store core/ray spans a cluster")
    assert checked(store="core/ray", placement="ray") == []


def test_engine_and_trainer_have_to_share_a_transport(toy):
    (problem,) = checked(engine="toy/far")
    assert "receives weights by nccl" in problem
    assert "sends them by disk" in problem
