"""What a process of a test needs so that Megatron's own code runs over gloo, on CPUs."""

from contextlib import nullcontext
from unittest.mock import MagicMock

import torch
from megatron.core.transformer.moe import token_dispatcher
from torch import distributed


def as_if_on_cuda():
    """This process's CPU is what Megatron exchanges on and makes buffers of its own on; parts of
    unequal sizes travel as NCCL takes them."""
    zeros = torch.zeros
    torch.zeros = lambda *size, **given: zeros(*size, **(given | _on_cpu(given)))
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.synchronize = lambda *device: None
    torch.cuda.Stream = torch.cuda.current_stream = MagicMock
    torch.cuda.stream = lambda stream: nullcontext()
    torch.distributed.all_gather, torch.distributed.reduce_scatter = all_gather, reduce_scatter
    token_dispatcher.maybe_move_tensor_to_cpu = as_on_cpu


def _on_cpu(given):
    return {"device": "cpu"} if given.get("device") == "cuda" else {}


def as_on_cpu(tensor, as_numpy=False, record_stream=False):
    return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor


def all_gather(found, own, group=None):
    for rank, each in enumerate(found):
        sent = own.clone() if rank == distributed.get_rank(group) else torch.empty_like(each)
        distributed.broadcast(sent, group_src=rank, group=group)
        each.copy_(sent)


def reduce_scatter(own, given, group=None):
    for rank, each in enumerate(given):
        total = each.clone()
        distributed.all_reduce(total, group=group)
        if rank == distributed.get_rank(group):
            own.copy_(total)
