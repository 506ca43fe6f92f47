"""Two ranks with half of the vocabulary each, against one that has all of it."""

import multiprocessing

import numpy as np
import pytest
import torch

from axisrl.ops.head_plan import HeadPlan
from axisrl.ops.logprobs import VocabularyShard, token_logprobs

spawn = multiprocessing.get_context("spawn")
M, H, V, LIMIT_S = 11, 6, 14, 120
UNEVEN = 2**18 + 1
"""One row more fits fewer tokens into a block: 3, and 4 for the rank that has a row less."""
CASES = {
    "kept": (V, HeadPlan(chunk_tokens=4, kept_bytes=1 << 20, entropy=False)),
    "recomputed": (V, HeadPlan(chunk_tokens=4, kept_bytes=0, entropy=False)),
    "with entropy": (V, HeadPlan(chunk_tokens=4, kept_bytes=100, entropy=True)),
    "uneven": (UNEVEN, HeadPlan(chunk_tokens=4, kept_bytes=0, entropy=False)),
}


def inputs(vocabulary):
    generator = torch.Generator().manual_seed(5)
    hidden, weight = (torch.randn(n, H, generator=generator) for n in (M, vocabulary))
    labels = torch.randint(vocabulary, (M,), generator=generator)
    return hidden, weight, labels, torch.linspace(0.5, 2.0, M)


def computed(case, trained, start=0, stop=None, shard=None):
    """Log-probabilities, entropies and the gradients of hidden states and these rows."""
    vocabulary, plan = CASES[case]
    hidden, weight, labels, temperature = inputs(vocabulary)
    hidden = hidden.requires_grad_()
    weight = weight[start:stop].clone().requires_grad_(trained)
    logprobs, entropy = token_logprobs(hidden, weight, labels, temperature, plan, shard)
    total = (logprobs * torch.arange(1.0, M + 1)).sum()
    if plan.entropy:
        total = total + (entropy * torch.arange(M, 0.0, -1)).sum()
    total.backward()
    found = (logprobs.detach(), entropy.detach(), hidden.grad, weight.grad)
    return [None if x is None else x.numpy() for x in found]


def serve(pipe, rank, address):
    from torch import distributed

    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=address, rank=rank, world_size=2)
    for case, (vocabulary, _) in CASES.items():
        half = -(-vocabulary // 2)
        shard = VocabularyShard(rank * half, half, distributed.group.WORLD)
        for trained in (True, False):
            pipe.send(computed(case, trained, rank * half, (rank + 1) * half, shard))
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def halves(tmp_path_factory):
    """(case, trained) -> what each rank computed."""
    address = (tmp_path_factory.mktemp("ranks") / "meet").as_uri()
    pipes, processes = [], []
    for rank in range(2):
        ours, theirs = spawn.Pipe()
        processes.append(spawn.Process(target=serve, args=(theirs, rank, address), daemon=True))
        processes[-1].start()
        pipes.append(ours)
    found = {}
    for name in CASES:
        for trained in (True, False):
            assert all(pipe.poll(LIMIT_S) for pipe in pipes), "a rank never answered"
            found[name, trained] = [pipe.recv() for pipe in pipes]
    for process in processes:
        process.join(LIMIT_S)
    return found


@pytest.mark.parametrize("trained", [True, False], ids=["trained", "frozen weight"])
@pytest.mark.parametrize("case", CASES)
def test_halves_of_the_vocabulary_give_what_the_whole_gives(halves, case, trained):
    logprobs, entropy, hidden, weight = computed(case, trained)
    ranks = halves[case, trained]
    rtol = 1e-4 if case == "uneven" else 1e-7  # sums of so many differ by their order
    for rank in ranks:
        np.testing.assert_allclose(rank[0], logprobs, rtol, atol=1e-5)
        np.testing.assert_allclose(rank[1], entropy, rtol, atol=1e-5)
    np.testing.assert_allclose(ranks[0][2] + ranks[1][2], hidden, rtol, atol=1e-4)
    if trained:
        rows = np.concatenate([rank[3] for rank in ranks])
        np.testing.assert_allclose(rows, weight, rtol, atol=1e-4)
    else:
        assert ranks[0][3] is ranks[1][3] is weight is None
