"""Micro-batches through the stages of a pipeline, by Megatron's own schedules: one forward, one
backward, and the interleaved one where stages have several nets.

1. Every stage is given the same micro-batches. The first reads their tokens, the last computes what
   is wanted of them; in between hidden states pass, as many as a micro-batch has tokens.
2. The interleaved schedule takes multiples of a group of micro-batches, and shares that wait for
   each other as many as the one with the most. What is missing is filled with micro-batches of one
   token that nothing is computed of and whose gradient is 0 (:mod:`axisrl_megatron.idle`).
3. A stage that is lost is ``RankLost``, as elsewhere.

Gradients are summed over ranks later (:mod:`axisrl_megatron.held`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from megatron.core import parallel_state
from megatron.core.pipeline_parallel import get_forward_backward_func
from megatron.core.pipeline_parallel.p2p_communication import P2PCommunicator
from torch import Tensor

from axisrl.ops.token_batch import TokenBatch, token_batch
from axisrl_megatron.held import HeldModel
from axisrl_megatron.idle import NOTHING, passes
from axisrl_megatron.mesh import Mesh
from axisrl_megatron.portion import Portion

Finish = Callable[[Portion, Tensor], Tensor]
"""A micro-batch and its hidden states after the last norm -> a loss () or an answer, on the last
stage."""


def forward(held: HeldModel, batches: Sequence[TokenBatch], finish: Finish) -> list[Tensor]:
    """What ``finish`` says of each micro-batch, on the last stage; elsewhere nothing."""
    with torch.no_grad():
        found: list[Tensor] = _run(held, batches, finish, forward_only=True)
    return found[: len(batches)]


def forward_backward(held: HeldModel, batches: Sequence[TokenBatch], finish: Finish) -> None:
    """Add the gradients of the sum of all losses."""
    _run(held, batches, finish, forward_only=False)


def _run(
    held: HeldModel, batches: Sequence[TokenBatch], finish: Finish, *, forward_only: bool
) -> Any:
    filled = [Portion.of(tokens, held.mesh) for tokens in _filled(held, batches)]
    if not filled:
        return []

    def step(iterator: Iterator[Portion], net: Any) -> tuple[Tensor, Callable[..., Any]]:
        portion = next(iterator)

        def reduce(hidden_N1H: Tensor, non_loss_data: bool = False) -> Any:
            empty = portion.tokens.source is NOTHING
            loss = hidden_N1H[:0].sum() if empty else finish(portion, hidden_N1H)
            return loss if non_loss_data else (loss, torch.zeros((), dtype=torch.int), None)

        return net(portion), reduce

    config = held.net.config
    found = get_forward_backward_func()(
        forward_step_func=step,
        data_iterator=[iter(filled) for _ in held.nets],
        model=held.nets,
        num_microbatches=len(filled),
        seq_length=1,  # not read: each message says its size
        micro_batch_size=1,
        forward_only=forward_only,
        collect_non_loss_data=forward_only,
        p2p_communicator=_Exchange(held.mesh, config),
        pg_collection=held.net.pg_collection,
    )
    for net in held.nets:
        net.set_input_tensor([None])  # the last micro-batch's, which nobody needs
    return found


def _filled(held: HeldModel, batches: Sequence[TokenBatch]) -> list[TokenBatch]:
    count = passes(held, len(batches))
    if held.mesh.layout.virtual > 1:
        count += -count % held.net.config.microbatch_group_size_per_vp_stage
    filler = token_batch(NOTHING, held.device)
    return [*batches, *([filler] * (count - len(batches)) if filler else [])]


class _Exchange(P2PCommunicator):  # type: ignore[misc]
    """Megatron's, in which a lost stage is ``RankLost``."""

    def __init__(self, mesh: Mesh, config: Any) -> None:
        super().__init__(parallel_state.get_pipeline_model_parallel_group(), config)
        self._mesh = mesh

    def _communicate(self, **options: Any) -> Any:
        with self._mesh.waiting():
            before, after, handles = super()._communicate(**options)
        if isinstance(handles, dict):
            handles = {name: _Handle(self._mesh, each) for name, each in handles.items()}
        return before, after, handles


class _Handle:
    """One of torch's, in whose wait a lost stage is ``RankLost``."""

    def __init__(self, mesh: Mesh, handle: Any) -> None:
        self._mesh = mesh
        self._handle = handle

    def wait(self) -> None:
        """Return when the message has passed."""
        with self._mesh.waiting():
            self._handle.wait()
