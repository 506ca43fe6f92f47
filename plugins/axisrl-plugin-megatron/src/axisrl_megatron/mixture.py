"""Megatron's mixture of experts, as the net uses it: its router, and how tokens reach experts.

A router chooses again what came with the batch (:mod:`axisrl_megatron.replay`) through Megatron's
own hook, a ``RouterReplay`` a router. Megatron keeps all of a process in one list, and replays to
all of them at once; here each layer tells its own router, so that models do not mix.

It holds no experts: Megatron's layer spec does.

Shapes: ``N`` tokens, ``K`` experts a token, ``E`` experts.
"""

from __future__ import annotations

from typing import Any

import torch
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.moe.router import TopKRouter
from megatron.core.transformer.moe.router_replay import RouterReplay, RouterReplayAction
from megatron.core.transformer.transformer_layer import TransformerLayer
from torch import Tensor
from torch.nn import functional

from axisrl_megatron.attention import RowParams
from axisrl_megatron.device import is_megatrons
from axisrl_megatron.replay import own_part

_DTYPES = {"fp32": torch.float32, "fp64": torch.float64}


class Router(TopKRouter):  # type: ignore[misc]
    """Megatron's, whose logits need a CUDA device and, in 0.16, Transformer Engine."""

    def __init__(self, config: TransformerConfig, **options: Any) -> None:
        super().__init__(config=config, **options)
        self.router_replay = TokenReplay()

    def gating(self, input: Tensor) -> Tensor:
        """Logits (N, 1, experts) in ``moe_router_dtype``, or the input's type where that is
        None."""
        dtype = _DTYPES.get(self.config.moe_router_dtype, input.dtype)
        return functional.linear(input.to(dtype), self.weight.to(dtype))


class TokenReplay(RouterReplay):  # type: ignore[misc]
    """Megatron's, for tokens of which some have no experts to replay, and in no list of all."""

    def __init__(self) -> None:
        super().__init__()
        RouterReplay.global_router_replay_instances.remove(self)

    def aim(self, experts_NK: Tensor | None) -> None:
        """Choose these from here on, whenever the layer is computed; -1 and None are the router's
        own choice."""
        self.target_topk_idx = experts_NK
        forward = RouterReplayAction.REPLAY_FORWARD
        self.router_replay_action = None if experts_NK is None else forward

    def get_replay_topk(
        self,
        scores: Tensor,
        topk: int,
        num_groups: int | None = None,
        group_topk: int | None = None,
        default_compute_topk: Any = None,
    ) -> tuple[Tensor, Tensor]:
        """Scores and experts (N, K), given scores (N, E)."""
        found: tuple[Tensor, Tensor] = default_compute_topk(scores, topk, num_groups, group_topk)
        if self.target_topk_idx is None:
            return found
        kept_NK = self.target_topk_idx.to(scores.device, torch.int64)
        experts_NK = torch.where(kept_NK < 0, found[1], kept_NK)
        return scores.gather(1, experts_NK), experts_NK


class Layer(TransformerLayer):  # type: ignore[misc]
    """Megatron's, which tells its router the experts that came with the batch."""

    def forward(self, *args: Any, **options: Any) -> Any:
        """See Megatron's; computed again, it does the same."""
        params: RowParams = options["packed_seq_params"]
        if self.is_moe_layer:
            experts_NK = params.experts_of(self.layer_number)
            if experts_NK is not None:
                count = len(options["hidden_states"])
                experts_NK = own_part(experts_NK, self.tp_group.rank(), count)
            self.mlp.router.router_replay.aim(experts_NK)
        return super().forward(*args, **options)


def dispatch(device: torch.device, experts: int) -> dict[str, Any]:
    """Options of ``TransformerConfig``: what moves tokens to their experts."""
    if experts and not is_megatrons(device):  # one rank, which gathers from nobody
        return {"moe_token_dispatcher_type": "allgather", "variable_seq_lengths": False}
    return {"moe_token_dispatcher_type": "alltoall", "variable_seq_lengths": True}
