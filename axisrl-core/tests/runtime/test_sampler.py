from axisrl.runtime.sampler import TaskSampler
from axisrl.types import Task


class Numbers:
    def __init__(self, size):
        self.size = size

    def __len__(self):
        return self.size

    def __getitem__(self, index):
        return Task(id=str(index), data={})


def take(sampler, count):
    return [sampler.take().id for _ in range(count)]


def test_every_task_comes_once_an_epoch_in_a_new_order():
    sampler = TaskSampler(Numbers(10), seed=0)
    first, second = take(sampler, 10), take(sampler, 10)
    assert sorted(first) == sorted(second)
    assert len(set(first)) == 10
    assert first != second


def test_resuming_at_any_cursor_gives_the_rest_of_the_same_order():
    whole = take(TaskSampler(Numbers(7), seed=3), 30)
    for cursor in range(30):  # epoch edges included
        resumed = TaskSampler(Numbers(7), seed=3)
        resumed.cursor = cursor
        assert take(resumed, 30 - cursor) == whole[cursor:]


def test_another_seed_is_another_order():
    assert take(TaskSampler(Numbers(20), seed=0), 20) != take(TaskSampler(Numbers(20), seed=1), 20)
