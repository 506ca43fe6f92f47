"""Shares of a window's time, and the tracks on which actors are drawn."""

import asyncio
from itertools import combinations

import pytest

from axisrl.errors import RunFailed
from axisrl.runtime.busy import Activity
from axisrl.runtime.spans import Span, SpanLog, read_events
from axisrl.runtime.timeline import Timeline
from axisrl.runtime.trainer import StepReport
from axisrl.types import Handle, Outcome, RolloutSummary, StepStats


class Engine:
    """Answers from a list; an exception in it is raised."""

    def __init__(self, *answers):
        self.answers = list(answers)

    async def call(self, method):
        assert method == "activity"
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


class Bench:
    def __init__(self, folder):
        self.now, self.path = 0.0, folder / "events.jsonl"
        self.spans = SpanLog(self.path)

    def timeline(self, **engines):
        clocks = {"clock": lambda: self.now, "wall": lambda: self.now + 1000.0}
        return Timeline(self.spans, engines, **clocks)

    def drawn(self):
        events = read_events(self.path)
        names = {
            event["tid"]: f"{event['args']['process']}/{event['args']['name']}"
            for event in events
            if event["name"] == "thread_name"
        }
        return [(names[e["tid"]], e["name"], e) for e in events if e["ph"] == "X"]


@pytest.fixture
def bench(tmp_path):
    bench = Bench(tmp_path)
    yield bench
    bench.spans.close()


def windows(timeline, count):
    async def run():
        return [await timeline.window() for _ in range(count)]

    return asyncio.run(run())


def rollout(member, seconds, worker="rollout-0"):
    owner = f"{worker}/train-{member}"
    record = Handle(store="s", key="k", shape=(1,), dtype="|u1", owner=owner, checksum=0)
    return RolloutSummary(
        id=f"train-{member}",
        task_id="t",
        group=0,
        member=member,
        outcome=Outcome.COMPLETED,
        reward=1.0,
        record=record,
        seconds=seconds,
    )


def test_the_trainer_waited_while_the_run_was_in_its_rollout_phase(bench):
    timeline = bench.timeline()
    for phase, seconds in (("rollout", 3.0), ("train", 1.0)):
        bench.spans.total[phase] += seconds
        bench.now += seconds
    assert windows(timeline, 1) == [{"time/trainer_wait_frac": 0.75}]
    bench.now += 5.0
    assert windows(timeline, 1) == [{"time/trainer_wait_frac": 0.0}]


def test_an_engine_is_idle_for_what_is_not_work_since_it_was_last_asked(bench):
    engine = Engine(Activity(50.0, 7.0, ()), Activity(60.0, 9.5, ()), Activity(62.0, 11.5, ()))
    first, second, third = windows(bench.timeline(engine=engine), 3)
    assert "time/engine_idle_frac" not in first
    assert second["time/engine_idle_frac"] == 0.75
    assert third["time/engine_idle_frac"] == 0.0


def test_several_engines_count_alike_whatever_their_clocks_say(bench):
    near = Engine(Activity(0.0, 0.0, ()), Activity(10.0, 10.0, ()))
    far = Engine(Activity(9e6, 0.0, ()), Activity(9e6 + 10.0, 5.0, ()))
    assert windows(bench.timeline(near=near, far=far), 2)[1]["time/engine_idle_frac"] == 0.25


def test_a_dead_engine_and_one_that_began_anew_are_left_out(bench):
    dead = Engine(Activity(1.0, 1.0, ()), RunFailed("gone"))
    anew = Engine(Activity(9.0, 9.0, ()), Activity(1.0, 0.5, ()))
    live = Engine(Activity(0.0, 0.0, ()), Activity(2.0, 1.0, ()))
    shares = windows(bench.timeline(dead=dead, anew=anew, live=live), 2)
    assert shares[1]["time/engine_idle_frac"] == 0.5
    alone = windows(bench.timeline(dead=Engine(RunFailed("gone"))), 1)
    assert "time/engine_idle_frac" not in alone[0]


def test_an_engines_calls_and_weight_updates_have_tracks_of_their_own(bench):
    spans = (Span("generate", 5.0, 1.0), Span("update weights", 6.0, 0.5))
    windows(bench.timeline(**{"engine rank 0": Engine(Activity(9.0, 1.0, spans))}), 1)
    drawn = [(track, name) for track, name, _ in bench.drawn()]
    assert drawn == [
        ("engine rank 0/calls", "generate"),
        ("engine rank 0/weights", "update weights"),
    ]


def test_a_rollout_ends_when_it_comes_home_and_began_as_long_ago_as_it_took(bench):
    bench.now = 10.0
    bench.timeline().rollout(rollout(0, 4.0))
    ((track, name, event),) = bench.drawn()
    assert (track, name) == ("rollout-0/rollout 1", "completed")
    assert (event["ts"], event["dur"]) == (1_006_000_000, 4_000_000)
    assert event["args"]["id"] == "train-0"


def test_rollouts_of_one_track_never_overlap_and_tracks_are_used_again(bench):
    timeline = bench.timeline()
    for member, (end, seconds) in enumerate([(4, 4), (5, 4), (6, 1), (9, 3), (10, 4), (20, 1)]):
        bench.now = float(end)
        timeline.rollout(rollout(member, float(seconds)))
    tracks = {}
    for track, _, event in bench.drawn():
        tracks.setdefault(track, []).append((event["ts"], event["ts"] + event["dur"]))
    assert set(tracks) == {"rollout-0/rollout 1", "rollout-0/rollout 2"}
    for spans in tracks.values():
        assert all(a[1] <= b[0] or b[1] <= a[0] for a, b in combinations(spans, 2))


def test_each_worker_has_its_own_process(bench):
    timeline = bench.timeline()
    for worker in ("rollout-0", "rollout-1"):
        timeline.rollout(rollout(0, 1.0, worker))
    (_, _, first), (_, _, second) = bench.drawn()
    assert first["pid"] != second["pid"]


def test_every_model_that_learns_draws_its_step(bench):
    stats = StepStats(metrics={}, tokens=1, trained_tokens=1, learning_rate=0.1, grad_norm=1.0)
    report = StepReport(stats=stats, rows=1, batches=1, began=7.0, seconds=2.0)
    bench.timeline().learnt(3, {"value": report, "loss": report})
    drawn = {track: event for track, _, event in bench.drawn()}
    assert set(drawn) == {"trainer/value", "trainer/policy"}
    assert drawn["trainer/policy"]["ts"] == 7_000_000
    assert drawn["trainer/policy"]["args"] == {"step": 3}


def test_tokens_per_pass_are_those_of_the_window_over_all_engines(bench):
    first, second = Activity(1.0, 0.0, (), 10, 10), Activity(2.0, 0.0, (), 70, 30)
    other = Activity(1.0, 0.0, (), 0, 0), Activity(2.0, 0.0, (), 30, 10)
    timeline = bench.timeline(a=Engine(first, second), b=Engine(*other))
    before, window = windows(timeline, 2)
    assert "rollout/tokens_per_pass" not in before
    assert window["rollout/tokens_per_pass"] == pytest.approx(90 / 30)


def test_engines_that_do_not_tell_their_passes_have_no_share_in_them(bench):
    timeline = bench.timeline(a=Engine(Activity(1.0, 0.0, ()), Activity(2.0, 0.0, ())))
    assert "rollout/tokens_per_pass" not in windows(timeline, 2)[1]
