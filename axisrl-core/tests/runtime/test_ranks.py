"""Ranks called as one actor, and what each rank does of a window's work."""

import asyncio
import dataclasses
import socket

import numpy as np
import pytest

from axisrl.config.schema import PlacementConfig
from axisrl.errors import ConfigError, EngineFailure, RankLost, RunFailed
from axisrl.runtime import ranks
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.placement import InlinePlacement
from axisrl.runtime.ranks import RankedHandle, free_address, spawn_ranks
from axisrl.runtime.trainer import TrainerActor, ValueActor
from axisrl.testing.fakes import ScriptedTrainer
from axisrl.types import ModelSpec, RolloutGroup, RolloutSummary, Sample, Share


class Rank:
    """Answers with its number, or as it is told."""

    def __init__(self, number, answer=None):
        self.number, self.calls, self.answer = number, [], answer

    async def call(self, method, *args):
        self.calls.append((method, *args))
        if isinstance(self.answer, BaseException):
            raise self.answer
        if self.answer == "hang":
            await asyncio.Event().wait()
        return self.number if self.answer is None else self.answer


def asked(method, *answers, grace_s=5.0):
    ranks = [Rank(number, answer) for number, answer in enumerate(answers)]
    handle = RankedHandle("trainer", ranks, grace_s=grace_s)
    return asyncio.run(handle.call(method, "x")), ranks


def test_every_rank_is_called_with_the_same_and_rank_0_answers():
    answer, ranks = asked("step", None, None, None)
    assert answer == 0
    assert [rank.calls for rank in ranks] == [[("step", "x")]] * 3


@pytest.mark.parametrize("method", ["save", "weight_update", "needs", "rendezvous"])
def test_what_one_rank_can_do_for_all_is_rank_0s(method):
    answer, ranks = asked(method, None, None)
    assert answer == 0
    assert [len(rank.calls) for rank in ranks] == [1, 0]


@pytest.mark.parametrize("method", ["load", "stop", "set_entropy_coef", "load_window"])
def test_what_changes_a_rank_goes_to_all(method):
    _, ranks = asked(method, None, None)
    assert [len(rank.calls) for rank in ranks] == [1, 1]


def test_scores_of_the_ranks_are_put_together():
    answer, _ = asked("score", {"a": 1}, {"b": 2}, {})
    assert answer == {"a": 1, "b": 2}


def test_an_error_names_its_rank_and_keeps_its_fix():
    with pytest.raises(EngineFailure) as caught:
        asked("step", None, EngineFailure("no memory", fix="buy some"))
    assert str(caught.value) == "trainer rank 1: no memory\n  fix: buy some"


def test_an_error_of_another_kind_carries_its_rank_as_a_note():
    with pytest.raises(ZeroDivisionError) as caught:
        asked("step", None, ZeroDivisionError())
    assert caught.value.__notes__ == ["raised by trainer rank 1"]


def test_a_rank_that_lost_the_others_is_not_the_reason():
    with pytest.raises(RunFailed, match="trainer rank 1: it died") as caught:
        asked("step", RankLost("lost the others"), RunFailed("it died"))
    assert not isinstance(caught.value, RankLost)


def test_when_all_only_lost_each_other_the_first_says_so():
    with pytest.raises(RankLost, match="trainer rank 0: lost"):
        asked("step", RankLost("lost"), RankLost("lost"))


@pytest.mark.parametrize("failed", [0, 1])
def test_nobody_waits_for_a_rank_that_hangs_once_another_failed(failed):
    answers = ["hang", "hang"]
    answers[failed] = RunFailed("it died")
    with pytest.raises(RunFailed, match=f"rank {failed}: it died"):
        asked("step", *answers, grace_s=0.01)


def test_a_call_that_is_cancelled_cancels_every_rank():
    ranks = [Rank(0, "hang"), Rank(1, "hang")]

    async def work():
        async with asyncio.timeout(0.01):
            await RankedHandle("trainer", ranks).call("step")

    with pytest.raises(TimeoutError):
        asyncio.run(work())


def test_a_free_address_is_none_of_those_that_outgoing_connections_get():
    ports = {int(free_address().rpartition(":")[2]) for _ in range(20)}
    assert len(ports) > 1
    assert max(ports) < 32768


def test_a_port_in_use_is_not_chosen(monkeypatch):
    with socket.socket() as taken:
        host, _, port = free_address().rpartition(":")
        taken.bind((host, int(port)))
        taken.listen()
        choices = iter([int(port), int(port), 31_999])
        monkeypatch.setattr(ranks._RANDOM, "randrange", lambda *span: next(choices))
        assert free_address().endswith(":31999")


def test_a_free_address_can_be_listened_at():
    host, _, port = free_address().rpartition(":")

    async def listen():
        server = await asyncio.start_server(lambda *_: None, host, int(port))
        server.close()

    asyncio.run(listen())


class Joined(ScriptedTrainer):
    """Says what it was told about its ranks."""

    ranks = None

    def join(self, ranks):
        self.ranks = ranks
        return Share(index=ranks.rank, count=ranks.size)


class Divided(Joined):
    """Two ranks share a model; only the first of them hands on."""

    def __init__(self):
        super().__init__()
        self.asked = []

    def join(self, ranks):
        self.ranks = ranks
        first = ranks.rank % 2 == 0
        return Share(index=ranks.rank // 2, count=ranks.size // 2, speaks=first, whole=False)

    def save(self, path):
        self.asked.append("save")

    def weight_update(self, version):
        self.asked.append("weight_update")


class StateDivided(Divided):
    """Every rank has the whole model, and a part of the optimizer's state."""

    def join(self, ranks):
        self.ranks = ranks
        return Share(index=ranks.rank, count=ranks.size, divides_state=True)


class Trainer(TrainerActor):
    """The policy's actor with its inside open."""

    def told(self):
        return self.backend.ranks

    def learn(self, samples):
        self._window, self._masked, self._ages = [samples, samples], [0, 0], [(), ()]


@pytest.fixture
def boot(stage, model_folder, tmp_path):
    """(ranks, overrides) -> the boot of the policy's ranks."""

    def make(ranks, *overrides):
        loaded, manager = stage.load(*overrides)
        placement = PlacementConfig(kind="ray", trainer_ranks=ranks, rank_timeout_s=7.0)
        return ActorBoot(
            role="trainer",
            rank=0,
            manifest=manager.manifest(),
            config=dataclasses.replace(loaded.config, placement=placement),
            run_dir=tmp_path,
            model=ModelSpec(name="m", path=model_folder),
        )

    return make


def in_ranks(boot, work, backend=Joined, actor=Trainer):
    """``work(handle, the actors)`` with every rank in this process."""

    class Open(actor):
        def build(self, kind, use, path):
            part = super().build(kind, use, path)
            return backend() if kind == "trainer" else part

    async def whole():
        placement = InlinePlacement(store=None)
        try:
            handle = await spawn_ranks(placement, Open, boot, "trainer")
            return await work(handle, [host._actor for host in placement._hosts])
        finally:
            await placement.close()

    return asyncio.run(whole())


def rows(count):
    one = np.ones(3, np.float32)
    return [
        Sample(
            trajectory=at,
            ids=np.full(3, at, np.int32),
            labels=np.full(3, at, np.int32),
            loss_mask=np.ones(3, bool),
            advantages=one,
            rollout_logprobs=-one,
            versions=np.zeros(3, np.int32),
            temperature=one,
        )
        for at in range(count)
    ]


def test_one_rank_is_an_actor_like_any_other(boot):
    async def work(handle, actors):
        return isinstance(handle, RankedHandle), actors[0].told()

    assert in_ranks(boot(1), work) == (False, None)


def test_ranks_know_their_number_and_meet_at_one_address(boot):
    async def work(handle, actors):
        return [actor.told() for actor in actors]

    told = in_ranks(boot(3), work)
    assert [(ranks.rank, ranks.size, ranks.timeout_s) for ranks in told] == [
        (0, 3, 7.0),
        (1, 3, 7.0),
        (2, 3, 7.0),
    ]
    assert len({ranks.rendezvous for ranks in told}) == 1


def test_a_backend_that_trains_alone_is_refused(boot):
    async def work(handle, actors):
        raise AssertionError

    with pytest.raises(ConfigError, match="trainer rank 0: the trainer of the trainer trains"):
        in_ranks(boot(2), work, backend=ScriptedTrainer)


@pytest.mark.parametrize("count", [5, 1])
def test_each_rank_steps_over_its_own_batches_of_one_global_batch(boot, count):
    async def work(handle, actors):
        for actor in actors:
            actor.learn(rows(count))
        report = await handle.call("step", 0)
        return report, [actor.backend.batches[0] for actor in actors]

    report, batches = in_ranks(boot(2), work)
    assert (report.rows, report.batches) == (count, sum(map(len, batches)))
    assert len(batches[0]) == len(batches[1])
    seen = [row for mine in batches for batch in mine for row in batch.rows]
    assert sorted(seen) == list(range(count))
    weights = [batch.columns["weights"].sum() for mine in batches for batch in mine]
    assert sum(weights) == pytest.approx(1.0)


def test_old_log_probabilities_are_computed_where_they_will_be_used(boot):
    async def work(handle, actors):
        for actor in actors:
            actor.learn(rows(5))
            actor._window = [actor._with_old_logprobs(update) for update in actor._window]
        await handle.call("step", 1)
        return actors

    for actor in in_ranks(boot(2, "loss=stage/proximal"), work):
        assert 0 < actor.backend.passes["logprobs"] <= 2  # of two updates' own batches
        own = [batch.columns["old_logprobs"] for batch in actor.backend.batches[0]]
        assert np.isfinite(np.concatenate(own)).all()


class Scored:
    """A rollout of one row, whose value is all that is wanted."""

    def __init__(self, row):
        self.samples = [row]

    def closed(self):
        return self.samples

    def gather_closed(self, found):
        return found[0][:-1], found[0][-1]


class Critic(ValueActor):
    async def trajectory(self, summary, number):
        return Scored(rows(1)[0])

    async def put(self, values):
        return self.boot.rank, len(values)


@pytest.mark.parametrize(("count", "by_rank"), [(5, [0, 1, 0, 1, 0]), (1, [0])])
def test_each_rank_scores_its_share_of_the_rollouts(boot, count, by_rank):
    members = tuple(
        RolloutSummary(id=f"r{at}", task_id="t", group=0, member=at, outcome="finished", reward=0.0)
        for at in range(count)
    )
    groups = [RolloutGroup(group=0, task_id="t", members=members)]

    async def work(handle, actors):
        for actor in actors:
            actor.backend.start(dataclasses.replace(actor.boot.model, head="value"), 1)
        return await handle.call("score", groups)

    there = boot(2, "advantage=stage/critic", "value={loss: stage/error}")
    found = in_ranks(there, work, actor=Critic)
    assert found == {f"r{at}": (rank, 3) for at, rank in enumerate(by_rank)}


def test_ranks_that_divide_a_model_step_over_the_same_batches(boot):
    async def work(handle, actors):
        for actor in actors:
            actor.learn(rows(5))
        await handle.call("step", 0)
        return [
            [row for batch in actor.backend.batches[0] for row in batch.rows] for actor in actors
        ]

    seen = in_ranks(boot(4), work, backend=Divided)
    assert seen[0] == seen[1] and seen[2] == seen[3]
    assert sorted(seen[0] + seen[2]) == list(range(5))


def test_ranks_that_divide_a_model_are_all_asked_for_what_needs_all_of_it(boot, tmp_path):
    async def work(handle, actors):
        await handle.call("save", tmp_path)
        await handle.call("weight_update", 1)
        return [actor.backend.asked for actor in actors]

    assert in_ranks(boot(4), work, backend=Divided) == [["save", "weight_update"]] * 4
    assert in_ranks(boot(2), work, backend=StateDivided) == [["save", "weight_update"], ["save"]]
