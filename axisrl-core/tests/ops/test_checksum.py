"""Tests of axisrl.ops.checksum."""

import pytest
import torch

from axisrl.ops.checksum import weights_checksum


def weights():
    generator = torch.Generator().manual_seed(3)
    return {
        "embed": torch.randn(50, 300, generator=generator),
        "norm": torch.ones(7),
        "scale": torch.tensor(2.5),
        "empty": torch.zeros(0, 4),
    }


def test_the_order_of_the_names_does_not_matter():
    named = weights()
    assert weights_checksum(named) == weights_checksum(dict(reversed(named.items())))


def test_equal_weights_in_another_memory_layout_have_the_same_checksum():
    named = weights()
    other = {**named, "embed": named["embed"].t().contiguous().t()}
    assert weights_checksum(named) == weights_checksum(other)


@pytest.mark.parametrize("index", [(0, 0), (13, 200), (49, 299)])
def test_the_smallest_change_of_any_element_shows(index):
    named, other = weights(), weights()
    value = other["embed"][index]
    other["embed"][index] = torch.nextafter(value, value + 1)
    assert weights_checksum(named) != weights_checksum(other)


@pytest.mark.parametrize("pair", [(0, 1), (0, 2), (5, 9000), (14_000, 14_999)])
def test_two_exchanged_elements_show(pair):
    named, other = weights(), weights()
    flat = other["embed"].view(-1)
    flat[list(pair)] = flat[list(reversed(pair))]
    assert weights_checksum(named) != weights_checksum(other)


def test_a_negative_zero_differs_from_a_zero():
    assert weights_checksum({"a": torch.zeros(3)}) != weights_checksum({"a": -torch.zeros(3)})


def test_name_shape_and_dtype_are_part_of_it():
    base = weights_checksum({"a": torch.zeros(4, 2)})
    others = [("b", torch.zeros(4, 2)), ("a", torch.zeros(2, 4)), ("a", torch.zeros(4, 2).half())]
    assert base not in {weights_checksum(dict([other])) for other in others}


def test_a_missing_tensor_shows():
    named = weights()
    fewer = {name: tensor for name, tensor in named.items() if name != "norm"}
    assert weights_checksum(named) != weights_checksum(fewer)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.int8])
def test_every_dtype_is_read_bit_by_bit(dtype):
    one, two = torch.ones(5000).to(dtype), torch.ones(5000).to(dtype)
    two[4321] = 2
    assert weights_checksum({"a": one}) != weights_checksum({"a": two})
    assert weights_checksum({"a": one}) == weights_checksum({"a": one.clone()})


def test_a_tensor_that_starts_inside_its_storage_is_read_alike():
    storage = torch.arange(9001, dtype=torch.float32)
    inside = storage[1:]
    assert weights_checksum({"a": inside}) == weights_checksum({"a": inside.clone()})


def test_no_weights_have_a_checksum():
    assert len(weights_checksum({})) == 32
