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


WIDE = """
from axisrl.plugins import TrainerComponent, hookimpl

@hookimpl
def axisrl_trainer_backends():
    return [TrainerComponent(name="trainer", target="{module}.parts:Trainer", transports=("disk",),
                             data_parallel=True)]
"""


def test_several_trainer_ranks_need_a_data_parallel_trainer(toy, site):
    site.add("wide", WIDE)
    two = {"kind": "ray", "trainer_ranks": 2}
    (problem,) = checked(placement=two)
    assert problem.startswith("placement.trainer_ranks 2 shares every batch among 2 trainers")
    assert problem.endswith("and trainer toy/trainer trains alone")
    assert checked(placement=two, trainer="wide/trainer") == []
    assert checked(placement="ray") == []


SHARING = """
from axisrl.plugins import EngineComponent, TrainerComponent, hookimpl

@hookimpl
def axisrl_rollout_engines():
    return [EngineComponent(name="engine", target="{module}:Engine", transports=("disk",),
                            offloads=True, scores=True)]

@hookimpl
def axisrl_trainer_backends():
    return [TrainerComponent(name="trainer", target="{module}:Trainer", transports=("disk",),
                             offloads=True)]
"""
SHARED = {
    "placement": {"colocate": True},
    "engine": "sharing/engine",
    "trainer": "sharing/trainer",
    "teacher": {"model": "big", "engine": "sharing/engine"},
}


def test_components_that_share_memory_can_hand_it_over(toy, learning, site):
    site.add("sharing", SHARING)
    value = {"loss": "learning/value", "trainer": "sharing/trainer"}
    shared = {**SHARED, "value": value, "advantage": "learning/gae"}
    assert checked(**shared) == []
    for path, use in [
        ("engine", {"engine": "toy/engine"}),
        ("trainer", {"trainer": "toy/trainer"}),
        ("value.trainer", {"value": {**value, "trainer": "toy/trainer"}}),
        ("teacher.engine", {"teacher": {"model": "big", "engine": "toy/engine"}}),
    ]:
        (problem, *_) = checked(**{**shared, **use})
        plugin = f"{path} toy/{path.rpartition('.')[2]} cannot hand its memory over"
        assert problem.startswith("placement.colocate lets engines and trainers take turns")
        assert problem.endswith(plugin)


LEARNING = """
from axisrl.plugins import AdvantageComponent, CorrectionComponent, LossComponent, hookimpl

@hookimpl
def axisrl_advantages():
    return [AdvantageComponent(name="gae", target="{module}:Gae", needs_values=True)]

@hookimpl
def axisrl_losses():
    return [LossComponent(name="value", target="{module}:Value", trains="value")]

@hookimpl
def axisrl_corrections():
    return [CorrectionComponent(name="mask", target="{module}:Mask")]
"""
VALUE = {"loss": "learning/value"}
TALKS = {"mode": "train_offline", "loss": "core/sft", "rollout": {"group_size": 8}}


@pytest.fixture
def learning(toy):
    """The toy, and a plugin with what a value model and corrections need."""
    toy.add("learning", LEARNING)


def test_an_advantage_that_needs_values_needs_a_value_model(learning):
    assert checked(advantage="learning/gae", value=VALUE) == []
    (problem,) = checked(advantage="learning/gae")
    assert problem.startswith("advantage learning/gae is computed from a value model")


def test_a_value_model_that_nothing_uses_is_refused(learning):
    (problem,) = checked(value=VALUE)
    assert problem == "value has no effect: advantage toy/group uses no value model"


def test_each_model_takes_a_loss_of_its_own_kind(learning):
    found = checked(advantage="learning/gae", value={"loss": "toy/clip"}, loss="learning/value")
    assert found == [
        "loss: learning/value trains the value model, not the policy",
        "value.loss: toy/clip trains the policy model, not the value",
    ]


def test_a_teacher_behind_an_engine_needs_one_that_scores(toy):
    (problem,) = checked(teacher={"model": "big", "engine": "toy/engine"})
    assert problem == "engine toy/engine cannot say how likely given tokens are"


def test_conversations_take_a_loss_that_reads_nothing_recorded_at_sampling(learning):
    assert checked(**TALKS) == []
    replayed = {**TALKS, "loss": "toy/clip", "offline": {"rollouts": "run"}}
    assert checked(**replayed, corrections=["learning/mask"]) == []
    found = checked(
        **{**TALKS, "loss": "toy/clip"},
        corrections=["learning/mask"],
        kl={"coef": 0.1, "base": "rollout"},
    )
    said = "needs what was recorded at sampling, and conversations were not sampled"
    assert found == [
        f"{what} {said}" for what in ("loss toy/clip", "learning/mask", "kl.base rollout")
    ]


@pytest.mark.parametrize(
    ("part", "keys"),
    [
        ("value", {"value": VALUE, "advantage": "learning/gae"}),
        ("teacher", {"teacher": {"model": "big"}}),
    ],
)
def test_what_changes_advantages_is_refused_where_the_loss_reads_none(learning, part, keys):
    said = f"{part} has no effect: it changes advantages, and loss core/sft reads none"
    assert checked(loss="core/sft", **keys) == [said]


SPREAD = """
from axisrl.plugins import EngineComponent, TrainerComponent, hookimpl

@hookimpl
def axisrl_rollout_engines():
    return [EngineComponent(name="engine", target="{module}:Engine", transports=("disk",),
                            spans=True)]

@hookimpl
def axisrl_trainer_backends():
    return [TrainerComponent(name="trainer", target="{module}:Trainer", transports=("disk",),
                             config="axisrl.config.training:TrainingOptions")]
"""
TWO_MACHINES = {"kind": "ray", "engine_nodes": 2}


def test_an_engine_on_several_machines_must_be_one_that_can_be(toy, site):
    site.add("spread", SPREAD)
    (problem,) = checked(placement=TWO_MACHINES)
    assert problem.startswith("placement.engine_nodes 2 puts one engine on 2 machines, and engine")
    assert problem.endswith("toy/engine serves on one")
    assert checked(placement=TWO_MACHINES, engine="spread/engine") == []
    assert checked(placement="ray") == []


@pytest.mark.parametrize(
    ("transport", "reaches"),
    [("shared_memory", False), ("cuda_ipc", False), ("disk", True), ("nccl", True)],
)
def test_weights_must_reach_every_machine_of_an_engine(toy, site, transport, reaches):
    site.add("spread", SPREAD)
    trainer = {"use": "spread/trainer", "transport": transport}
    found = checked(placement=TWO_MACHINES, engine="spread/engine", trainer=trainer)
    said = f"trainer.transport {transport} stays on one machine, and placement.engine_nodes 2"
    assert [problem.startswith(said) for problem in found] == [True] * (not reaches)
    assert checked(placement="ray", engine="spread/engine", trainer=trainer) == []


def test_routing_needs_an_engine_that_can_tell_it(toy):
    trainer, engine = checked(rollout={"routing": True})
    assert "trainer toy/trainer would choose others by its own" in trainer
    assert "engine toy/engine cannot tell them" in engine
