"""The process groups in which Megatron keeps its layout, for this process.

Megatron holds them in module variables, one layout a process. So they are made by the first model
of a process and given up after the last; models with another layout are refused.
"""

from __future__ import annotations

from axisrl.errors import EnvironmentProblem
from axisrl_megatron.layout import Layout

_users: dict[Layout, int] = {}
"""How many models use the layout that is set; at most one layout."""


def enter(layout: Layout) -> None:
    """Set the layout for this process, or use it where it is set.

    Raises ``EnvironmentProblem`` while a model uses another one, and for a process group of
    another size.
    """
    if _users and layout not in _users:
        raise EnvironmentProblem(
            f"this process trains a model over {next(iter(_users))}, so none over {layout}",
            fix="place them in processes of their own: placement.kind ray",
        )
    if not _users:
        _start(layout)
    _users[layout] = _users.get(layout, 0) + 1


def leave(layout: Layout) -> None:
    """Give up what :func:`enter` set, when nobody else uses it."""
    from megatron.core import parallel_state
    from torch import distributed

    _users[layout] -= 1
    if not _users[layout]:
        del _users[layout]
        parallel_state.destroy_model_parallel()
        distributed.destroy_process_group()


def _start(layout: Layout) -> None:
    import torch
    from megatron.core import parallel_state
    from torch import distributed

    if distributed.is_initialized():
        raise EnvironmentProblem(
            "this process already has a torch process group, and Megatron needs its own",
            fix="place the models in processes of their own: placement.kind ray",
        )
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store = distributed.HashStore()  # type: ignore[attr-defined]
    distributed.init_process_group(backend, store=store, rank=0, world_size=layout.world)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=layout.tensor,
        pipeline_model_parallel_size=layout.pipeline,
        context_parallel_size=layout.context,
        expert_model_parallel_size=layout.expert,
        create_gloo_process_groups=False,
    )
