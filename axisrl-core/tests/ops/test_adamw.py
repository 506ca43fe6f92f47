"""Tests of axisrl.ops.adamw."""

import math

import pytest
import torch

from axisrl.config.training import TrainingOptions
from axisrl.ops.adamw import Optimizer, learning_rate


def parameters(dtype=torch.float32):
    matrix = torch.nn.Parameter(torch.ones(2, 2, dtype=dtype))
    norm = torch.nn.Parameter(torch.ones(2, dtype=dtype))
    return [("matrix", matrix), ("norm", norm)]


def optimizer(named, total_steps=10, master_weights="float32", **options):
    config = TrainingOptions(**{"lr": 0.1, **options})
    return Optimizer(named, config, total_steps, master_weights)


def give_gradients(named, value):
    for _, parameter in named:
        (parameter.float() * value).sum().backward()


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"warmup_steps": 2}, [0.5, 1, 1, 1, 1]),
        ({"schedule": "linear"}, [1, 0.8, 0.6, 0.4, 0.2]),
        ({"schedule": "linear", "min_lr_ratio": 0.5}, [1, 0.9, 0.8, 0.7, 0.6]),
        ({"schedule": "linear", "warmup_steps": 1}, [1, 1, 0.75, 0.5, 0.25]),
        ({"schedule": "cosine"}, [0.5 + 0.5 * math.cos(math.pi * i / 5) for i in range(5)]),
    ],
)
def test_the_learning_rate_warms_up_and_decays(options, want):
    config = TrainingOptions(lr=2.0, **options)
    got = [learning_rate(config, step, 5) for step in range(5)]
    assert got == pytest.approx([2.0 * x for x in want])


def test_the_learning_rate_stays_at_its_end_after_the_last_step():
    config = TrainingOptions(lr=2.0, schedule="cosine", min_lr_ratio=0.1)
    assert learning_rate(config, 99, 5) == pytest.approx(0.2)


def test_a_step_is_adamw_with_decay_on_matrices_alone():
    named = parameters()
    give_gradients(named, 3.0)
    optimizer(named, weight_decay=0.5, max_grad_norm=0).step()
    # The first AdamW step moves by lr in the gradient's direction, whatever its size.
    assert named[0][1].flatten().tolist() == pytest.approx([1 * (1 - 0.1 * 0.5) - 0.1] * 4)
    assert named[1][1].tolist() == pytest.approx([0.9] * 2)


def test_clipping_reports_the_norm_before_and_scales_the_moments():
    named = parameters()
    give_gradients(named, 10.0)
    kept = optimizer(named, max_grad_norm=1.0)
    report = kept.step()
    assert report.grad_norm == pytest.approx(10 * math.sqrt(6))
    want = 0.1 * 1.0 / math.sqrt(6)
    assert kept.tensors()["exp_avg/norm"].tolist() == pytest.approx([want] * 2)


def test_max_grad_norm_zero_measures_only():
    named = parameters()
    give_gradients(named, 10.0)
    kept = optimizer(named, max_grad_norm=0)
    assert kept.step().grad_norm == pytest.approx(10 * math.sqrt(6))
    assert kept.tensors()["exp_avg/norm"].tolist() == pytest.approx([1.0] * 2)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_non_finite_gradient_norm_leaves_everything_but_the_step_count(bad):
    named = parameters()
    kept = optimizer(named)
    give_gradients(named, 1.0)
    kept.step()
    before = [p.detach().clone() for _, p in named] + [t.clone() for t in kept.tensors().values()]
    give_gradients(named, bad)
    report = kept.step()
    assert not report.applied
    assert (kept.steps, kept.updates) == (2, 1)
    after = [p.detach() for _, p in named] + list(kept.tensors().values())
    assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def test_gradients_are_gone_after_a_skipped_step():
    named = parameters()
    kept = optimizer(named)
    give_gradients(named, math.nan)
    kept.step()
    assert kept.step().grad_norm == 0


def test_float32_masters_collect_updates_that_bfloat16_cannot_hold():
    ends = []
    for master_weights in ("float32", "model"):
        named = parameters(torch.bfloat16)
        kept = optimizer(named, lr=1e-3, master_weights=master_weights)
        for _ in range(8):
            give_gradients(named, 1.0)
            kept.step()
        ends.append(float(named[0][1].detach()[0, 0]))
    assert ends[0] == pytest.approx(1 - 8e-3, abs=4e-3)
    assert ends[1] == 1.0


def test_gradients_of_half_weights_are_summed_in_float32():
    named = parameters(torch.bfloat16)
    kept = optimizer(named, max_grad_norm=0)
    for value in (1.0, 2**-9, 2**-9):
        give_gradients(named, value)
    # In bfloat16 1 + 2^-9 is 1 again.
    assert kept.step().grad_norm == pytest.approx((1 + 2**-8) * math.sqrt(6), rel=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("before", [0, 2])
def test_a_restored_optimizer_goes_on_bit_for_bit(before, dtype):
    def steps(kept, named, values):
        for value in values:
            give_gradients(named, value)
            kept.step()

    named = parameters(dtype)
    kept = optimizer(named, weight_decay=0.1, schedule="cosine")
    steps(kept, named, [0.3, -2.0][:before])
    tensors = {name: tensor.clone() for name, tensor in kept.tensors().items()}
    copies = [(name, torch.nn.Parameter(p.detach().clone())) for name, p in named]
    other = optimizer(copies, weight_decay=0.1, schedule="cosine")
    other.restore(tensors, steps=kept.steps, updates=kept.updates)
    for pair in ((kept, named), (other, copies)):
        steps(*pair, [0.7, 0.01])
    assert all(torch.equal(a, b) for (_, a), (_, b) in zip(named, copies, strict=True))


def test_restore_names_a_missing_moment():
    named = parameters()
    with pytest.raises(KeyError, match="exp_avg/matrix"):
        optimizer(named).restore({}, steps=1, updates=1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_beside_the_weights_is_named_once_and_is_no_weight(dtype):
    named = parameters(dtype)
    made = optimizer(named)
    assert len(list(made.beside_weights())) == (2 if dtype == torch.bfloat16 else 0)
    give_gradients(named, 0.5)
    during = [name for name, _ in made.beside_weights()]
    made.step()
    found = dict(made.beside_weights())
    assert {"gradient/matrix", "gradient/norm"} <= set(during)
    assert {"exp_avg/norm", "exp_avg_sq/matrix", "step/matrix"} <= found.keys()
    assert not any(name.startswith("gradient") for name in found)
    weights = {id(parameter) for _, parameter in named}
    assert not weights & {id(tensor) for tensor in found.values()}
