"""Mesh: the processes that train a model together, and the groups in which Megatron keeps them.

1. :class:`axisrl_megatron.layout.Layout` says where a rank is; Megatron numbers them the same way.
2. Megatron holds its groups in module variables, one layout a process. So they are made by the
   first model of a process and given up after the last; models with another layout are refused.

It knows no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import Any, TypeVar

from torch import Tensor

from axisrl.errors import EnvironmentProblem
from axisrl.ops.masters import Division
from axisrl.ops.rank_group import RankGroup
from axisrl.types import Ranks, Share
from axisrl_megatron.context import ContextPart
from axisrl_megatron.layout import Layout

T = TypeVar("T")
_users: dict[Layout, int] = {}
"""How many models use the layout that is set; at most one layout."""


class Mesh:
    """This process's membership, for one model."""

    def __init__(self, layout: Layout, ranks: Ranks | None) -> None:
        """Set the layout for this process, or use it where it is set; ``ranks`` are None of a model
        that is alone.

        Raises ``EnvironmentProblem`` while a model uses another layout or several ranks, and
        ``RankLost`` when a rank does not come.
        """
        if _users and (layout not in _users or layout.world > 1):
            raise EnvironmentProblem(
                f"this process trains a model over {next(iter(_users))}, so none over {layout}",
                fix="place them in processes of their own: placement.kind ray",
            )
        self.layout = layout
        self.rank = 0 if ranks is None else ranks.rank
        self.place = layout.place(self.rank)
        self._group = _start(layout, ranks) if not _users else None
        _users[layout] = _users.get(layout, 0) + 1

    @property
    def share(self) -> Share:
        """What this rank gets of the batches."""
        return self.layout.share(self.rank)

    @property
    def tensor_group(self) -> Any:
        """Torch's group of the ranks that have the other parts."""
        from megatron.core import parallel_state

        return parallel_state.get_tensor_model_parallel_group()

    @property
    def expert_group(self) -> Any:
        """Torch's group of the ranks that have the other experts."""
        from megatron.core import parallel_state

        return parallel_state.get_expert_model_parallel_group()

    @property
    def expert_tensor_group(self) -> Any:
        """Torch's group of the ranks that have the other parts of the same experts."""
        from megatron.core import parallel_state

        return parallel_state.get_expert_tensor_parallel_group()

    def context_part(self, tokens: int) -> ContextPart | None:
        """This rank's of a batch of so many tokens; None where it has all of them."""
        from megatron.core import parallel_state

        if self.layout.context == 1:
            return None
        return ContextPart(
            index=self.place.context,
            size=self.layout.context,
            tokens=tokens,
            group=parallel_state.get_context_parallel_group(),
            waiting=self.waiting,
        )

    def meet(self) -> None:
        """Return when every rank is here. Raises ``RankLost``."""
        if self._group is not None:
            self._group.meet()

    def gather(self, one: T) -> list[T]:
        """What every rank gave, by rank."""
        return [one] if self._group is None else self._group.gather(one)

    @cached_property
    def division(self) -> Division | None:
        """Over the ranks that :meth:`sum_over_data` sums over; None of a model that is alone."""
        if self._group is None:
            return None
        return Division(self._group, _data_group())

    @cached_property
    def division_of_ends(self) -> Division | None:
        """The same, of what the first stage and the last have: its sums are those of both."""
        if self._group is None:
            return None
        return _EndsDivision(self._group, self)

    @cached_property
    def division_of_experts(self) -> Division | None:
        """Over the ranks that have the same part of the experts; None where :attr:`division` is."""
        if self._group is None:
            return None
        return Division(self._group, _expert_data_group())

    def waiting(self) -> AbstractContextManager[None]:
        """Inside, a peer that is lost is ``RankLost``."""
        return nullcontext() if self._group is None else self._group.waiting("step")

    def computing(self) -> AbstractContextManager[None]:
        """Inside, where Megatron waits, a peer that is lost is ``RankLost``, too."""
        return nullcontext() if self._group is None else self._group.computing("step")

    def sum_over_data(self, tensors: Sequence[Tensor]) -> None:
        """Replace each by its sum over the shares, and over the ranks that divide a share's tokens;
        ranks that have the same part of the model get the same bits."""
        if self._group is not None and self.layout.replicas > 1:
            self._group.sum_(tensors, _data_group())

    def sum_over_parts(self, tensors: Sequence[Tensor]) -> None:
        """Replace each by its sum over the ranks that share the layers."""
        if self._group is not None and self.layout.tensor > 1 and tensors:
            self._group.sum_(tensors, self.tensor_group)

    def sum_over_expert_data(self, tensors: Sequence[Tensor]) -> None:
        """Replace each by its sum over the ranks that have the same part of the experts."""
        if self._group is not None and self.layout.expert_replicas > 1 and tensors:
            self._group.sum_(tensors, _expert_data_group())

    def sum_over_experts(self, tensors: Sequence[Tensor]) -> None:
        """Replace each by its sum over the ranks that have the other parts of the experts."""
        from megatron.core import parallel_state

        if self._group is not None and self.layout.expert_parts > 1:
            self._group.sum_(tensors, parallel_state.get_expert_tensor_and_model_parallel_group())

    def sum_over_stages(self, tensors: Sequence[Tensor]) -> None:
        """Replace each by its sum over the stages."""
        from megatron.core import parallel_state

        if self._group is not None and self.layout.pipeline > 1:
            self._group.sum_(tensors, parallel_state.get_pipeline_model_parallel_group())

    def sum_over_ends(self, tensors: Sequence[Tensor]) -> None:
        """Replace each by its sum over the first stage and the last, to be called last, so that
        both have the same bits; others have none."""
        from megatron.core import parallel_state

        if self._group is not None and self.layout.pipeline > 1 and tensors:
            self._group.sum_(tensors, parallel_state.get_embedding_group())

    def from_last_stage(self, tensor: Tensor) -> None:
        """Give every stage the last one's."""
        from megatron.core import parallel_state
        from torch import distributed

        group = parallel_state.get_pipeline_model_parallel_group()
        with self.waiting():
            distributed.broadcast(tensor, src=self.rank_of(self.layout.pipeline - 1), group=group)

    def rank_of(self, stage: int) -> int:
        """Of the rank that is this one of another stage."""
        size = self.layout.world // self.layout.pipeline
        return self.rank % size + stage * size

    def leave(self) -> None:
        """Give up the groups, when no other model uses them."""
        from megatron.core import parallel_state
        from torch import distributed

        _users[self.layout] -= 1
        if not _users[self.layout]:
            del _users[self.layout]
            parallel_state.destroy_model_parallel()
            distributed.destroy_process_group()


class _EndsDivision(Division):
    """Summed over the batches first: two summands give the first stage and the last the same
    bits."""

    def __init__(self, ranks: RankGroup, mesh: Mesh) -> None:
        super().__init__(ranks, _data_group())
        self._mesh = mesh

    def sums(self, values: Sequence[Tensor]) -> list[Tensor]:
        found = super().sums(values)
        self._mesh.sum_over_ends(found)
        return found


def _data_group() -> Any:
    """Torch's group of the ranks that have the same part of the model."""
    from megatron.core import parallel_state

    return parallel_state.get_data_parallel_group(with_context_parallel=True)


def _expert_data_group() -> Any:
    """Torch's group of the ranks that have the same part of the experts."""
    from megatron.core import parallel_state

    return parallel_state.get_expert_data_parallel_group()


def _start(layout: Layout, ranks: Ranks | None) -> RankGroup | None:
    import torch
    from megatron.core import parallel_state
    from megatron.core.tensor_parallel.random import initialize_rng_tracker
    from torch import distributed

    if distributed.is_initialized():
        raise EnvironmentProblem(
            "this process already has a torch process group, and Megatron needs its own",
            fix="place the models in processes of their own: placement.kind ray",
        )
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    group = None
    if ranks is None:
        store = distributed.HashStore()  # type: ignore[attr-defined]
        distributed.init_process_group(backend, store=store, rank=0, world_size=1)
    else:
        group = RankGroup(ranks, backend)
    try:
        _divide(layout, ranks)
    except BaseException:  # whatever it was, the next start finds a process without groups
        parallel_state.destroy_model_parallel()
        distributed.destroy_process_group()
        raise
    # Layers draw nothing (no dropout), so no rank needs a generator of its own.
    initialize_rng_tracker(inference_rng_tracker=True)
    return group


def _divide(layout: Layout, ranks: Ranks | None) -> None:
    from megatron.core import parallel_state

    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        virtual_pipeline_model_parallel_size=layout.virtual if layout.virtual > 1 else None,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        expert_tensor_parallel_size=layout.expert_tensor,
        create_gloo_process_groups=False,
        **({} if ranks is None else {"distributed_timeout_minutes": ranks.timeout_s / 60}),
    )
