"""kill -9 at every named point inside a step, one process a run: what the resumed run makes is, bit
for bit, what one that was never killed makes.

Here a third of the points, the same every time; all of them, inline and on Ray:
``make kill-points``.
"""

import os
import random

import pytest

from axisrl.runtime.spans import read_events

SEED = 4
SHORT = ("train.updates=3", "checkpoint.every=1", "eval.every=2")
STEPS = (1, 2, 3)
PHASES = {
    "rollout": STEPS,
    "score": STEPS,
    "train": STEPS,
    "sync": STEPS,
    "evaluate": (0, 2, 3),
    "checkpoint": STEPS,
    "checkpoint write": STEPS,
    "checkpoint rename": STEPS,
    "checkpoint mark": STEPS,
}
EVERYWHERE = os.environ.get("AXISRL_KILL_POINTS") == "all"


def every_point(phase):
    return [(step, edge, phase) for step in PHASES[phase] for edge in ("before", "after")]


def some_points(share):
    """That share of each phase's points."""
    drawn = random.Random(SEED)
    points = [drawn.sample(every_point(p), len(every_point(p)) // share) for p in PHASES]
    return [point for of_phase in points for point in of_phase]


def twice():
    """A point of each of two steps, so that the second is still ahead after the first."""
    drawn = random.Random(SEED)
    return [drawn.choice([point for point in ALL if point[0] == step]) for step in (2, 3)]


def named(point):
    return "step {} {} {}".format(*point)


ALL = [point for phase in PHASES for point in every_point(phase)]
INLINE = ALL if EVERYWHERE else some_points(3)


@pytest.fixture(scope="module")
def whole(make_shared_run):
    """The run that nobody killed."""
    run = make_shared_run("whole", *SHORT)
    run.whole()
    return run


def test_the_points_are_those_of_a_run(whole):
    steps = {}
    for event in read_events(whole.dir / "events.jsonl"):
        if event["ph"] == "X" and event["name"] in PHASES:
            steps.setdefault(event["name"], []).append(event["args"]["step"])
    assert {phase: tuple(found) for phase, found in steps.items()} == PHASES
    assert {phase for _, _, phase in INLINE} == PHASES.keys()


@pytest.mark.parametrize("point", INLINE, ids=named)
def test_a_run_killed_at_a_point_ends_as_if_it_never_was(make_run, same_run, whole, point):
    run = make_run("killed", *SHORT)
    run.kill_at(*point)
    run.go_on()
    same_run(run, whole)


ON_RAY = [[point] for point in ALL] if EVERYWHERE else [twice()]


@pytest.mark.parametrize("points", ON_RAY, ids=lambda points: ", ".join(map(named, points)))
def test_a_run_on_ray_killed_at_points_leaves_nobody_behind_and_ends_as_if_it_never_was(
    make_run, same_run, whole, points
):
    pytest.importorskip("ray")
    run = make_run("killed", *SHORT, "placement=ray")
    for point in points:
        run.kill_at(*point)
        run.wait_until_nobody_is_left()
    run.go_on()
    same_run(run, whole)
    run.wait_until_nobody_is_left()
    assert run.left_in_memory() == []
