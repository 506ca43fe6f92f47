import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.config.schema import SamplerConfig
from axisrl.errors import CheckpointError
from axisrl.runtime.sampler import TaskSampler
from axisrl.runtime.thin import short_id
from axisrl.types import Task

LEARNING = ["no_easy", "low_success", "intermediate"]


class Numbers:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return Task(id=f"task-{index}", data={})


def sampler_of(size, seed=0, **options):
    return TaskSampler(Numbers(size), seed, SamplerConfig(**options))


def take(sampler, count):
    return [sampler.take().id for _ in range(count)]


def taught(successes, **options):
    """A sampler that has seen each task once, with these mean rewards."""
    sampler = sampler_of(len(successes), **options)
    for name in take(sampler, len(successes)):  # nothing comes twice while in flight
        sampler.observe(name, [successes[int(name.removeprefix("task-"))]])
    return sampler


def play(sampler, rewards, count):
    """``count`` windows of two groups; a task's reward depends on it and on when it is played."""
    seen = []
    for _ in range(count):
        names = take(sampler, 2)
        for name in names:
            index = int(name.removeprefix("task-"))
            sampler.observe(name, [rewards[(index + len(seen)) % len(rewards)], rewards[index]])
        seen += names
    return seen


def test_a_task_is_observed_by_the_short_form_of_its_id():
    class Named(Numbers):
        def __getitem__(self, index):
            return Task(id=f"{'name ' * 50}{index}", data={})

    for state in ({}, {"tasks": 1, "flying": [0]}):
        sampler = TaskSampler(Named(1), 0, SamplerConfig(strategy="no_easy"))
        sampler.load_state_dict(state)
        name = Named(1)[0].id if state else sampler.take().id
        sampler.observe(short_id(name), [1.0])
        assert sampler.state_dict()["flying"] == []


def test_every_task_comes_once_an_epoch_in_a_new_order():
    sampler = sampler_of(10)
    first, second = take(sampler, 10), take(sampler, 10)
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 10
    assert first != second


def test_resuming_anywhere_gives_the_rest_of_the_same_order():
    """Pitfall 20: kill at any step, epoch edges included."""
    whole = take(sampler_of(7, seed=3), 30)
    for cursor in range(30):
        killed, resumed = sampler_of(7, seed=3), sampler_of(7, seed=3)
        take(killed, cursor)
        resumed.load_state_dict(json.loads(json.dumps(killed.state_dict())))
        assert resumed.cursor == cursor
        assert take(resumed, 30 - cursor) == whole[cursor:]


@pytest.mark.parametrize("strategy", ["uniform", *LEARNING])
def test_another_seed_is_another_order(strategy):
    first, second = (sampler_of(20, seed=seed, strategy=strategy) for seed in (0, 1))
    assert take(first, 20) != take(second, 20)


def test_uniform_learns_nothing_and_keeps_its_cursor_alone():
    sampler = sampler_of(5)
    for name in take(sampler, 3):
        sampler.observe(name, [1.0])
    assert (sampler.state_dict(), sampler.metrics()) == ({"cursor": 3}, {})


@pytest.mark.parametrize("strategy", LEARNING)
@given(data=st.data())
def test_a_resumed_sampler_goes_on_as_the_killed_one_would_have(strategy, data):
    """Pitfall 20, with in-flight tasks, for rewards of any range."""
    low, high = data.draw(st.sampled_from([(-1.0, 1.0), (0.0, 100.0), (2.0, 2.0)]))
    rewards = data.draw(st.lists(st.floats(low, high), min_size=6, max_size=6))
    whole = sampler_of(6, strategy=strategy)
    play(whole, rewards, data.draw(st.integers(0, 8)))
    flying = take(whole, data.draw(st.integers(0, 7)))
    resumed = sampler_of(6, strategy=strategy)
    resumed.load_state_dict(json.loads(json.dumps(whole.state_dict())))
    for sampler in (whole, resumed):
        for name in flying:
            sampler.observe(name, [rewards[0]])
    assert play(resumed, rewards, 10) == play(whole, rewards, 10)
    assert resumed.state_dict() == whole.state_dict()
    assert resumed.metrics() == whole.metrics()


@pytest.mark.parametrize("strategy", LEARNING)
def test_an_empty_state_is_the_beginning(strategy):
    sampler = sampler_of(6, strategy=strategy)
    begun = play(sampler, [0.0, 1.0, 0.5, 0.0, 1.0, 1.0], 6)
    sampler.load_state_dict({})
    assert sampler.cursor == 0
    assert play(sampler, [0.0, 1.0, 0.5, 0.0, 1.0, 1.0], 6) == begun


def test_a_state_is_not_changed_by_what_comes_after_it():
    sampler = sampler_of(6, strategy="low_success")
    play(sampler, [0.0, 1.0, 0.5, 0.0, 1.0, 1.0], 2)
    state = sampler.state_dict()
    before = json.dumps(state)
    play(sampler, [0.0, 1.0, 0.5, 0.0, 1.0, 1.0], 2)
    assert json.dumps(state) == before


SUCCESSES = [0.0, 0.25, 0.5, 0.75, 1.0]


@pytest.mark.parametrize(
    ("options", "weights"),
    [
        ({"strategy": "no_easy", "easy_above": 0.7}, [1, 1, 1, 0, 0]),
        ({"strategy": "low_success", "floor": 0.1}, [1, 0.75, 0.5, 0.25, 0.1]),
        ({"strategy": "intermediate", "floor": 0.1}, [0.1, 0.75, 1, 0.75, 0.1]),
    ],
)
@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 100)])
def test_tasks_are_drawn_in_proportion_to_their_weights(options, weights, low, high):
    sampler = taught([low + share * (high - low) for share in SUCCESSES], **options)
    drawn, rounds = Counter(), 4000
    for _ in range(rounds):
        (name,) = take(sampler, 1)
        drawn[name] += 1
        sampler.observe(name, [])  # home without a usable rollout: nothing is learnt
    shares = [drawn[f"task-{index}"] / rounds for index in range(5)]
    assert shares == pytest.approx(np.asarray(weights) / sum(weights), abs=0.03)
    assert [share == 0 for share in shares] == [weight == 0 for weight in weights]


@pytest.mark.parametrize("strategy", LEARNING)
def test_rewards_that_are_all_equal_leave_every_task_as_likely(strategy):
    sampler = taught([0.3] * 4, strategy=strategy)
    drawn = Counter()
    for _ in range(2000):
        (name,) = take(sampler, 1)
        drawn[name] += 1
        sampler.observe(name, [0.3, 0.3])
    assert [drawn[f"task-{n}"] / 2000 for n in range(4)] == pytest.approx([0.25] * 4, abs=0.04)


def test_where_every_weight_is_0_all_tasks_are_as_likely():
    sampler = taught([0.95, 1.0, 1.0], strategy="no_easy", easy_above=0)
    sampler.observe(*_bad_group(sampler))
    drawn = Counter()
    for _ in range(1500):
        (name,) = take(sampler, 1)
        drawn[name] += 1
        sampler.observe(name, [])
    assert [drawn[f"task-{n}"] / 1500 for n in range(3)] == pytest.approx([1 / 3] * 3, abs=0.05)


def _bad_group(sampler):
    """A group whose mean is high although the run's lowest reward is in it."""
    return sampler.take().id, [0.0, 1.0, 1.0]


@pytest.mark.parametrize("strategy", LEARNING)
def test_a_task_in_flight_is_not_drawn_while_others_exist(strategy):
    sampler = taught(SUCCESSES, strategy=strategy, floor=0, easy_above=0.1)
    assert len(set(take(sampler, 5))) == 5  # tasks of weight 0 come before one comes twice
    again = take(sampler, 3)  # all are in flight: the run goes on
    assert set(again) <= {f"task-{n}" for n in range(5)}


def test_a_task_that_came_home_can_be_drawn_at_once():
    sampler = sampler_of(1, strategy="low_success")
    (name,) = take(sampler, 1)
    sampler.observe(name, [1.0])
    assert take(sampler, 1) == [name]


def test_a_task_that_is_not_in_flight_cannot_be_observed():
    sampler = sampler_of(3, strategy="no_easy")
    (name,) = take(sampler, 1)
    sampler.observe(name, [1.0])
    with pytest.raises(ValueError, match="is not in flight"):
        sampler.observe(name, [1.0])


def test_tasks_of_one_id_are_learnt_in_the_order_they_were_taken():
    class Twins(Numbers):
        def __getitem__(self, index):
            return Task(id="twin", data={"n": index})

    sampler = TaskSampler(Twins(2), 0, SamplerConfig(strategy="low_success", floor=0))
    first = sampler.take().data["n"]
    sampler.take()
    sampler.observe("twin", [0.0])
    sampler.observe("twin", [1.0])
    assert sampler.take().data["n"] == first  # the other one has weight 0


def test_another_number_of_tasks_is_refused_on_resume():
    sampler = sampler_of(5, strategy="no_easy")
    state = sampler.state_dict()
    with pytest.raises(CheckpointError, match="the dataset has 4 tasks, it had 5"):
        sampler_of(4, strategy="no_easy").load_state_dict(state)
    sampler_of(4).load_state_dict(state)


def test_a_run_that_was_uniform_goes_on_without_knowledge():
    uniform, learning = sampler_of(5), sampler_of(5, strategy="low_success")
    take(uniform, 3)
    learning.load_state_dict(uniform.state_dict())
    assert (learning.cursor, learning.metrics()) == (3, {"seen_frac": 0.0})


def test_of_a_hundred_thousand_tasks_only_those_taken_are_read():
    class Counted(Numbers):
        read = 0

        def __getitem__(self, index):
            self.read += 1
            return super().__getitem__(index)

    dataset = Counted(100_000)
    sampler = TaskSampler(dataset, 0, SamplerConfig(strategy="intermediate"))
    for place, name in enumerate(take(sampler, 64)):
        sampler.observe(name, [float(place % 2), 0.5])
    assert len(set(take(sampler, 64))) == 64
    assert dataset.read == 128
    assert len(json.dumps(sampler.state_dict())) < 10_000
