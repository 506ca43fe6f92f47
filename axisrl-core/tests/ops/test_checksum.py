"""The weights' checksum: what it ignores (order of names, layout) and what it notices."""

from __future__ import annotations

import pytest
import torch

from axisrl.ops.checksum import weights_checksum

WEIGHTS = {"a": torch.arange(20000.0).view(200, 100), "b": torch.ones(3, dtype=torch.bfloat16)}


def test_order_of_names_does_not_matter() -> None:
    assert weights_checksum(WEIGHTS) == weights_checksum(dict(reversed(WEIGHTS.items())))


def test_layout_in_memory_does_not_matter() -> None:
    padded = torch.zeros(201, 101)
    padded[1:, 1:] = WEIGHTS["a"]
    assert weights_checksum(WEIGHTS | {"a": padded[1:, 1:]}) == weights_checksum(WEIGHTS)


def test_an_unaligned_view_gives_the_same_checksum() -> None:
    storage = torch.cat([torch.zeros(1), WEIGHTS["a"].flatten()])
    view = storage[1:].view(200, 100)
    assert weights_checksum(WEIGHTS | {"a": view}) == weights_checksum(WEIGHTS)


@pytest.mark.parametrize(
    "change",
    [
        {"a": WEIGHTS["a"] + 2e-3},
        {"a": WEIGHTS["a"].flip(0)},
        {"a": WEIGHTS["a"].flip(1)},
        {"a": WEIGHTS["a"].view(100, 200)},
        {"a": WEIGHTS["a"].double()},
        {"c": torch.ones(1)},
    ],
    ids=["values", "rows", "columns", "shape", "dtype", "names"],
)
def test_any_change_of_the_weights_shows(change: dict[str, torch.Tensor]) -> None:
    assert weights_checksum(WEIGHTS | change) != weights_checksum(WEIGHTS)


def test_one_bit_of_one_weight_shows() -> None:
    flipped = WEIGHTS["a"].clone()
    flipped.view(torch.int32)[7, 7] ^= 1
    assert weights_checksum(WEIGHTS | {"a": flipped}) != weights_checksum(WEIGHTS)


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (4096 * 2,), (4096 * 2 + 1,)])
def test_every_size_has_a_checksum(shape: tuple[int, ...]) -> None:
    assert weights_checksum({"a": torch.ones(shape)}) != weights_checksum({"a": torch.ones(9)})
