"""Tests of axisrl.ops.masters: ranks are threads, whose sums are exact in any order."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from axisrl.config.training import TrainingOptions
from axisrl.ops import rank_group
from axisrl.ops.adamw import Optimizer
from axisrl.ops.masters import Division

SHAPES = {"matrix": (5, 3), "scalar": (1,), "norm": (4,), "wide": (2, 2, 3)}


class Threads:
    """What ranks hand each other, as :class:`axisrl.ops.rank_group.RankGroup` does."""

    def __init__(self, size):
        self.size = size
        self._barrier = threading.Barrier(size, timeout=30)
        self._given = {}

    def of(self, rank):
        return Member(self, rank)

    def all(self, rank, value):
        self._given[rank] = value
        self._barrier.wait()
        found = [self._given[each].clone() for each in range(self.size)]
        self._barrier.wait()
        return torch.stack(found)


class Member:
    def __init__(self, threads, rank):
        self._threads, self._rank = threads, rank

    def place(self, group):
        return self._rank, self._threads.size

    def scatter_sum(self, rows_DP, group):
        return self._threads.all(self._rank, rows_DP).sum(0)[self._rank]

    def rows(self, own_P, group):
        return self._threads.all(self._rank, own_P)

    def sum_(self, tensors, group):
        for each in tensors:
            each.copy_(self._threads.all(self._rank, each).sum(0))


def parameters(dtype):
    generator = torch.Generator().manual_seed(3)
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in SHAPES.items()}
    return [(name, torch.nn.Parameter(value.to(dtype))) for name, value in drawn.items()]


def gradient(name, rank, step):
    """Multiples of 1/8, so that sums are exact."""
    generator = torch.Generator().manual_seed(100 * step + 10 * rank + len(name))
    return torch.randint(-16, 17, SHAPES[name], generator=generator) / 8


def collect(named, rank, step):
    for name, parameter in named:
        (parameter.float() * gradient(name, rank, step)).sum().backward()


def optimizer(named, division=None, kind="float32", **options):
    config = TrainingOptions(**{"lr": 0.1, "weight_decay": 0.1, "max_grad_norm": 1.0, **options})
    return Optimizer(named, config, 10, kind, division=division)


def together(size, play):
    """What ``play(rank, division)`` returns on each rank."""
    threads = Threads(size)

    def run(rank):
        everybody = Division(threads.of(rank))
        return play(rank, lambda name: everybody)

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))


def alone(size, dtype, steps, **options):
    """Weights and state after the same steps of one rank that collects what all do."""
    named = parameters(dtype)
    kept = optimizer(named, **options)
    reports = []
    for step in range(steps):
        for rank in range(size):
            collect(named, rank, step)
        reports.append(kept.step())
    return named, kept.tensors(), reports


@pytest.mark.parametrize("kind", ["float32", "model"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_that_divide_the_state_take_the_steps_of_one(size, dtype, kind):
    def play(rank, division):
        named = parameters(dtype)
        kept = optimizer(named, division, kind)
        reports = []
        for step in range(3):
            collect(named, rank, step)
            reports.append(kept.step())
        return named, kept.tensors(), reports

    want = alone(size, dtype, 3, kind=kind)
    near = {"rtol": 2e-6, "atol": 1e-7} if dtype is torch.float32 else {"rtol": 1e-2, "atol": 1e-3}
    for weights, state, reports in together(size, play):
        assert state.keys() == want[1].keys()
        for got, whole in zip(weights, want[0], strict=True):
            torch.testing.assert_close(got[1].detach(), whole[1].detach(), **near)
        for name, value in state.items():
            torch.testing.assert_close(value, want[1][name], **near)
        norms = [report.grad_norm for report in reports]
        assert norms == pytest.approx([report.grad_norm for report in want[2]], rel=1e-2)


def test_all_ranks_have_the_same_bits():
    def play(rank, division):
        named = parameters(torch.bfloat16)
        kept = optimizer(named, division)
        collect(named, rank, 0)
        kept.step()
        return [parameter.detach() for _, parameter in named] + list(kept.tensors().values())

    first, *others = together(3, play)
    assert all(torch.equal(a, b) for other in others for a, b in zip(first, other, strict=True))


def test_a_rank_holds_its_part_of_masters_and_moments_alone():
    def play(rank, division):
        named = parameters(torch.bfloat16)
        kept = optimizer(named, division)
        collect(named, rank, 0)
        kept.step()
        held = dict(kept.beside_weights())
        assert not any(name.startswith(("gradient/", "part/")) for name in held)
        return {name: value.numel() for name, value in held.items() if "step" not in name}

    parts = {"matrix": 5, "scalar": 1, "norm": 2, "wide": 4}
    kinds = ("master", "exp_avg", "exp_avg_sq")
    want = {f"{kind}/{name}": size for kind in kinds for name, size in parts.items()}
    assert together(3, play) == [want] * 3


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_state_of_three_ranks_continues_in_two_and_back_to_one(dtype):
    def steps(named, kept, rank, size, *numbers):
        for step in numbers:
            for part in range(rank, 6, size):
                collect(named, part, step)
            kept.step()
        return {name: value.clone() for name, value in kept.tensors().items()}

    def playing(size, numbers, given):
        def play(rank, division):
            named = parameters(dtype)
            kept = optimizer(named, division if size > 1 else None)
            if given is not None:
                for name, parameter in named:
                    parameter.data.copy_(given[0][name])
                kept.restore(given[1], steps=numbers[0], updates=numbers[0])
            state = steps(named, kept, rank, size, *numbers)
            return {name: p.detach().clone() for name, p in named}, state

        return together(size, play)[0]

    given = None
    for size, numbers in ((3, (0, 1)), (2, (2,)), (1, (3,))):
        given = playing(size, numbers, given)
    want = playing(1, (0, 1, 2, 3), None)
    near = 1e-5 if dtype is torch.float32 else 1e-2
    for name, value in want[0].items():
        torch.testing.assert_close(given[0][name], value, rtol=near, atol=near)


def test_a_gradient_that_is_not_finite_on_one_rank_stops_the_update_on_all():
    def play(rank, division):
        named = parameters(torch.bfloat16)
        kept = optimizer(named, division)
        before = [parameter.detach().clone() for _, parameter in named]
        collect(named, rank, 0)
        if rank == 1:
            (named[0][1].float() * torch.inf).sum().backward()
        report = kept.step()
        same = all(torch.equal(p.detach(), b) for (_, p), b in zip(named, before, strict=True))
        return report.applied, same, kept.updates

    assert together(2, play) == [(False, True, 0)] * 2


def test_a_rank_without_batches_gives_zeros():
    def play(rank, division):
        named = parameters(torch.float32)
        kept = optimizer(named, division)
        if rank == 0:
            collect(named, 0, 0)
        return kept.step().grad_norm

    assert together(2, play) == pytest.approx([alone(1, torch.float32, 1)[2][0].grad_norm] * 2)


def test_a_state_of_another_shape_is_refused():
    def play(rank, division):
        kept = optimizer(parameters(torch.float32), division)
        wrong = {f"{m}/{n}": torch.zeros(7) for m in ("exp_avg", "exp_avg_sq") for n in SHAPES}
        with pytest.raises(RuntimeError, match=r"matrix has \(7,\), not \(5, 3\)"):
            kept.restore(wrong, steps=1, updates=1)

    together(2, play)


def test_buckets_are_full_but_never_split_a_tensor(monkeypatch):
    monkeypatch.setattr(rank_group, "_BUCKET", 10)
    found = [(at.start, at.stop) for at in rank_group.buckets([4, 4, 4, 20, 1, 9])]
    assert found == [(0, 2), (2, 3), (3, 4), (4, 6)]
    assert list(rank_group.buckets([])) == []
