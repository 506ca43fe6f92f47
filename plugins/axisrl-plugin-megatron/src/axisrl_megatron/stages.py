"""Stages: ranks that hold other layers of one model. Megatron's options for them, and how one rank
gets the tensors of all.

Hidden states pass between stages in Megatron's schedules (:mod:`axisrl_megatron.schedule`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from axisrl_megatron.layout import Layout
from axisrl_megatron.mesh import Mesh

_BUCKET_BYTES = 2**28
"""Told of and handed over at once, unless one tensor is larger."""
Named = tuple[str, Tensor]


def pipeline_options(
    layout: Layout, dtype: torch.dtype, given: Mapping[str, Any]
) -> dict[str, Any]:
    """Of ``TransformerConfig``; ``given`` are the user's, ``dtype`` the model's."""
    if layout.pipeline == 1:
        return {"pipeline_dtype": dtype}
    interleaved = layout.virtual > 1
    return {
        "pipeline_dtype": torch.float32 if given.get("fp32_residual_connection") else dtype,
        "pipeline_model_parallel_size": layout.pipeline,
        "virtual_pipeline_model_parallel_size": layout.virtual if interleaved else None,
        # Two stages that send both ways in one batch would take one message for the other.
        "overlap_p2p_comm": interleaved,
        "batch_p2p_comm": not interleaved,
        # Where sending overlaps, the schedule frees an output before it was sent.
        "deallocate_pipeline_outputs": not interleaved,
        "calculate_per_token_loss": True,
    }


class _Told(NamedTuple):
    """A tensor that is to come."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    device: str


def of_all_stages(mesh: Mesh, own: Iterable[Named], *, everywhere: bool) -> Iterator[Named]:
    """The tensors of every stage, given this rank's, stage after stage: on rank 0, and on the
    others where ``everywhere``; from the others nothing comes. A model that is not divided is whole
    on every rank.

    Every rank must go through all, at once. Raises ``RankLost``.
    """
    keeps = everywhere or mesh.layout.parts == 1 or mesh.rank == 0
    if mesh.layout.pipeline == 1:
        yield from (each for each in own if keeps)
        return
    for stage in range(mesh.layout.pipeline):
        mine = _buckets(own) if stage == mesh.place.stage else iter(())
        while True:
            bucket = next(mine, None)
            told = mesh.gather(None if bucket is None else [_told(*each) for each in bucket])
            coming = told[mesh.rank_of(stage)]
            if coming is None:
                break
            for each, tensor in _handed(mesh, stage, coming, bucket, everywhere):
                if keeps:
                    yield each, tensor


def _handed(
    mesh: Mesh, stage: int, coming: list[_Told], bucket: list[Named] | None, everywhere: bool
) -> Iterator[Named]:
    """One bucket of ``stage``, where it is wanted or known."""
    from megatron.core import parallel_state
    from torch import distributed

    group = parallel_state.get_pipeline_model_parallel_group()
    source = mesh.rank_of(stage)
    for at, told in enumerate(coming):
        if bucket is not None:
            tensor = bucket[at][1].contiguous()
        elif everywhere or mesh.rank == 0:
            tensor = torch.empty(told.shape, dtype=told.dtype, device=told.device)
        else:
            continue
        with mesh.waiting():
            if everywhere:
                distributed.broadcast(tensor, src=source, group=group)
            elif mesh.rank == source and mesh.rank_of(0) == 0 and source != 0:
                distributed.send(tensor, dst=0, group=group)
            elif mesh.rank == 0 and source != 0:
                distributed.recv(tensor, src=source, group=group)
        yield told.name, tensor


def _told(name: str, tensor: Tensor) -> _Told:
    return _Told(name, tuple(tensor.shape), tensor.dtype, tensor.device.type)


def _buckets(tensors: Iterable[Named]) -> Iterator[list[Named]]:
    bucket: list[Named] = []
    size = 0
    for name, tensor in tensors:
        bucket.append((name, tensor))
        size += tensor.nbytes
        if size >= _BUCKET_BYTES:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket
