import asyncio
import dataclasses

import pytest

from axisrl.config.schema import (
    EntropyConfig,
    KlConfig,
    ModelConfig,
    RunConfig,
    TrainConfig,
    Use,
    ValueConfig,
)
from axisrl.runtime.checkpoint import RunState
from axisrl.runtime.learners import Learners
from axisrl.runtime.memory import MemoryTurns
from axisrl.runtime.trainer import StepReport
from axisrl.types import Handle, Metric, RolloutGroup, StepStats, WeightAck, WeightUpdate

ANY = Use(use="x")
GROUPS = [RolloutGroup(group=0, task_id="t", members=())]


class Model:
    """Records its calls; ``entropy`` is what each of its steps measures."""

    def __init__(self, name, entropy=()):
        self.name, self.calls, self.entropy = name, [], iter(entropy)

    async def call(self, method, *args):
        self.calls.append((method, *args))
        if method == "score":
            return {"r": Handle(store="s", key=self.name, shape=(), dtype="", owner="", checksum=0)}
        if method == "load_window":
            return {"r": 1.0 if self.name == "policy" else 2.0}
        if method == "weight_update":
            return WeightUpdate(
                version=args[0], transport="disk", location="", tensors=(), checksum="c"
            )
        if method == "update_weights":
            return WeightAck(version=args[0].version, checksum="c")
        return self.report() if method == "step" else None

    def report(self):
        measured = next(self.entropy, None)
        metrics = {} if measured is None else {"loss/entropy": Metric(value=measured)}
        stats = StepStats(
            metrics=metrics, tokens=1, trained_tokens=1, learning_rate=0.0, grad_norm=0.0
        )
        return StepReport(stats=stats, rows=1, batches=1)

    def named(self, method):
        return [args for name, *args in self.calls if name == method]


def learners(*, updates=4, warmup=0, entropy=None, kl=None, measured=(), **models):
    value = ValueConfig(loss=ANY, warmup_updates=warmup) if "value" in models else None
    config = RunConfig(
        model=ModelConfig(name="m"),
        dataset=ANY,
        env=ANY,
        engine=ANY,
        trainer=ANY,
        loss=ANY,
        advantage=ANY,
        value=value,
        kl=kl or KlConfig(),
        entropy=entropy or EntropyConfig(),
        train=TrainConfig(updates=updates, max_tokens_per_batch=4096),
    )
    memory = MemoryTurns(False, None)
    return Learners(config=config, memory=memory, policy=Model("policy", measured), **models)


def test_nothing_is_scored_when_no_other_model_is_there():
    one = learners()
    means, handles = asyncio.run(one.load_window([GROUPS], RunState()))
    assert (means, handles) == ({"r": 1.0}, [])
    ((window,),) = one.policy.named("load_window")
    assert window.scores == {}


def test_every_other_model_scores_the_window_once_for_whoever_learns():
    models = {name: Model(name) for name in ("value", "reference", "teacher")}
    one = learners(**models)
    _, handles = asyncio.run(one.load_window([GROUPS, GROUPS], RunState()))
    assert sorted(handle.key for handle in handles) == ["reference", "teacher", "value"]
    for model in models.values():
        assert model.named("score") == [[GROUPS + GROUPS]]
    for learner in (one.policy, models["value"]):
        ((window,),) = learner.named("load_window")
        assert set(window.scores) == {"values", "reference_logprobs", "teacher_logprobs"}


def steps(one, count, state=None):
    async def run():
        now, reports = state or RunState(), []
        for index in range(count):
            found, now = await one.step(index, now)
            reports.append(found)
        return reports, now

    return asyncio.run(run())


def test_both_models_step_and_report_under_their_own_name():
    one = learners(value=Model("value"))
    reports, state = steps(one, 2)
    assert [sorted(found) for found in reports] == [["loss", "value"]] * 2
    assert state.step == 2


def test_the_value_model_warms_up_alone_and_the_policy_has_the_rest_of_the_steps():
    one = learners(warmup=2, value=Model("value"))
    asyncio.run(one.start())
    asyncio.run(one.load_window([GROUPS], RunState()))
    reports, _ = steps(one, 3)
    assert [sorted(found) for found in reports] == [["value"], ["value"], ["loss", "value"]]
    assert one.policy.named("load_window") == []
    assert one.policy.named("start") == [[2]]
    assert one.value.named("start") == [[4]]


def test_nobody_scores_for_the_policy_before_it_learns():
    models = {name: Model(name) for name in ("value", "reference", "teacher")}
    one = learners(warmup=1, **models)
    asyncio.run(one.load_window([GROUPS], RunState()))
    assert [len(model.named("score")) for model in models.values()] == [1, 0, 0]
    asyncio.run(one.load_window([GROUPS], RunState(step=1)))
    assert [len(model.named("score")) for model in models.values()] == [2, 1, 1]


TARGET = EntropyConfig(target=1.0, coef=0.01, step=0.005, max_coef=0.012)


def test_too_little_entropy_raises_the_factor_up_to_its_bound():
    one = learners(entropy=TARGET, measured=[0.5, 0.5])
    _, state = steps(one, 2)
    assert state.entropy_coef == pytest.approx(0.012)
    assert one.policy.named("set_entropy_coef") == [[0.01], [0.012]]


def test_enough_entropy_lowers_the_factor_and_pays_nothing():
    one = learners(entropy=TARGET, measured=[1.5, 1.5, 1.5, 0.5])
    _, state = steps(one, 4)
    paid = [coef for (coef,) in one.policy.named("set_entropy_coef")]
    assert paid == [0.01, 0.0, 0.0, 0.0]
    assert state.entropy_coef == pytest.approx(0.005)


def test_control_goes_on_from_its_saved_state():
    whole = learners(entropy=TARGET, measured=[0.5, 1.5, 0.5])
    _, end = steps(whole, 3)
    first = learners(entropy=TARGET, measured=[0.5, 1.5])
    _, middle = steps(first, 2)
    rest = learners(entropy=TARGET, measured=[0.5])
    _, resumed = steps(rest, 1, middle)
    assert resumed == end
    assert rest.policy.calls == [*whole.policy.calls[-2:-1], ("step", 0)]


def test_without_a_target_nobody_touches_the_factor():
    one = learners(entropy=EntropyConfig(coef=0.01), measured=[0.5])
    _, state = steps(one, 1)
    assert state.entropy_coef is None
    assert one.policy.named("set_entropy_coef") == []


RESET = KlConfig(coef=0.1, reset_every=3)


@pytest.mark.parametrize(("step", "steps", "due"), [(3, 1, True), (4, 2, True), (4, 1, False)])
def test_the_reference_is_reset_where_a_multiple_lies_in_the_window(step, steps, due):
    one = learners(kl=RESET, reference=Model("reference"))
    state = asyncio.run(one.reset_reference(RunState(step=step), steps))
    assert state.reference_step == (step if due else 0)
    assert len(one.reference.named("update_weights")) == int(due)


def test_a_reference_is_saved_once_it_is_no_longer_the_starting_model():
    one = learners(value=Model("value"), reference=Model("reference"))
    assert set(one.saved(RunState(step=2))) == {"trainer", "value"}
    moved = dataclasses.replace(RunState(step=6), reference_step=6)
    assert set(one.saved(moved)) == {"trainer", "value", "reference"}
