import torch

from axisrl.ops.generators import Generators

CPU = torch.device("cpu")


def draw(generators):
    with generators.active():
        return torch.rand(3).tolist()


def test_what_is_drawn_depends_on_the_seed_and_on_nothing_else_in_the_process():
    one, other = Generators(5, CPU), Generators(5, CPU)
    first = draw(one)
    torch.rand(100)
    assert draw(other) == first
    assert draw(one) == draw(other) != first
    assert draw(Generators(6, CPU)) != first


def test_the_process_keeps_its_own_generator():
    before = torch.get_rng_state()
    draw(Generators(0, CPU))
    assert torch.equal(torch.get_rng_state(), before)


def test_restored_states_continue_the_sequence():
    one = Generators(5, CPU)
    draw(one)
    other = Generators(9, CPU)
    other.restore(one.tensors())
    assert draw(other) == draw(one)
