"""Named services: what a call answers, and whose failure it is when it does not."""

import asyncio
from pathlib import Path

import pytest

from axisrl.config.services import RESERVED
from axisrl.errors import ConfigError, RunFailed, ServiceFailure
from axisrl.runtime.calls import Call
from axisrl.runtime.placement import InlinePlacement
from axisrl.runtime.rollout import RolloutActor
from axisrl.runtime.services import RoutedService, ServiceActor, answered, group_of

SHELF = Path(__file__).with_name("shelf.py")


@pytest.fixture
def asked(stage):
    """``asked(method, *args, **options)``: what the service ``shelf`` answers to a component."""

    def asked(*call, **options):
        words = "services.shelf={use: shelf/shelf, books: [axis, atlas, reel]}"
        boot = stage.boot(words, role=group_of("shelf"), plugins=[SHELF])
        return asyncio.run(answer(boot, *call, **options))

    return asked


async def answer(boot, *call, **options):
    placement = InlinePlacement(store=None)
    replica = await placement.spawn(ServiceActor, boot)
    await replica.call("start")
    client = RoutedService("shelf", replica)
    try:
        return await client.call(*call, **options)
    finally:
        await replica.call("stop")
        await placement.close()


def test_a_call_reaches_the_method_of_that_name_with_its_arguments(asked):
    assert asked("find", "a") == ["axis", "atlas"]
    assert asked("find", letter="a", least=1) == ["atlas"]


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (("drop",), "service shelf, drop: KeyError: 'broken spine'"),
        (("find",), "service shelf, find: TypeError: Shelf.find() missing 1 required"),
        (("fnd", "a"), "service shelf has no method 'fnd', it has drop, exit, find, hang, where"),
        (("fnd", "a"), "did you mean find?"),
        (("stop",), "service shelf has no method 'stop'"),
        (("_hidden",), "service shelf has no method '_hidden'"),
    ],
)
def test_a_call_without_an_answer_names_service_method_and_reason(asked, call, told):
    with pytest.raises(ServiceFailure) as caught:
        asked(*call)
    assert told in caught.value.message


def test_a_call_over_its_deadline_is_cancelled(asked):
    with pytest.raises(ServiceFailure) as caught:
        asked("hang", timeout_s=0.01)
    assert caught.value.message == "service shelf, hang gave no answer within 0.01 s"


def test_a_failure_that_a_service_names_itself_passes():
    class Names:
        async def refuse(self):
            raise ServiceFailure("the index is being rebuilt")

    call = Call(name="refuse", limit_s=1.0)
    with pytest.raises(ServiceFailure, match=r"^the index is being rebuilt$"):
        asyncio.run(answered("wiki", Names(), call))


ASKING = (
    "services.shelf=shelf/shelf",
    "env=shelf/asks",
    "verifiers={asks: shelf/asks}",
    "rewards={main: shelf/asks}",
    "eval=null",
    "train.updates=1",
)


def test_env_verifier_and_reward_find_the_service_by_its_name(stage):
    stage(*ASKING, plugins=[SHELF])
    rows = stage.rollouts("step-000001")
    assert {row["messages"][0]["content"] for row in rows} == {"Say 2. ['axis']"}
    assert {row["verdicts"]["asks"]["detail"] for row in rows} == {"reel"}
    assert {row["summary"]["reward"] for row in rows} == {11.0}


def test_judges_in_pools_find_it_too(stage):
    pools = ("placement.verifiers=2", "placement.rewards=1", "services.shelf.replicas=2")
    stage(*ASKING, *pools, plugins=[SHELF])
    rows = stage.rollouts("step-000001")
    assert {row["summary"]["reward"] for row in rows} == {11.0}


def test_a_call_that_fails_is_the_callers_fault_and_names_the_service(stage):
    drops = ("env.method=drop", "rollout.max_failed_fraction=0.5")
    with pytest.raises(RunFailed, match="env: ServiceFailure: service shelf, drop: KeyError"):
        stage(*ASKING, *drops, plugins=[SHELF])


def test_a_service_that_does_not_start_ends_the_run_by_name(stage):
    with pytest.raises(ServiceFailure, match="service shelf did not start: OSError: no shelf"):
        stage(*ASKING, "services.shelf.books=[]", plugins=[SHELF])


def test_a_component_that_misses_its_service_is_told_its_name(stage):
    missing = [word for word in ASKING if not word.startswith("services")]
    with pytest.raises(ConfigError, match="needs the service 'shelf'") as caught:
        stage(*missing, plugins=[SHELF])
    assert caught.value.fix == "add services.shelf to the configuration"


def test_names_the_core_gives_to_components_are_refused_for_services(stage):
    boot = stage.boot()
    assert set(RolloutActor(boot, None, {"engine": []}).services) < set(RESERVED)
