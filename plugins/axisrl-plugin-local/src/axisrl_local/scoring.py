"""Log-probabilities of given tokens under the served model: what a teacher answers with.

The whole text goes through the body in one pass of its own: no slot and no cached prefix is read or
written, so requests that generate are not touched. The head is computed a chunk of tokens at a
time. It does not know which requests run (:mod:`axisrl_local.engine`).

Shapes: ``T`` tokens, ``H`` query heads, ``K`` key heads, ``D`` head size.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from axisrl.ops.head_plan import HeadPlan
from axisrl.ops.logprobs import token_logprobs
from axisrl.types import FloatArray, IntArray

_PLAN = HeadPlan(chunk_tokens=256, kept_bytes=0, entropy=False)


def causal_attention(
    layer: int, query_1HTD: Tensor, key_1KTD: Tensor, value_1KTD: Tensor, scale: float
) -> Tensor:
    """What :func:`axisrl_local.slots.slot_attention` calls in place of a step: (1, T, H, D)."""
    grouped = query_1HTD.shape[1] != key_1KTD.shape[1]
    attended_1HTD = scaled_dot_product_attention(
        query_1HTD, key_1KTD, value_1KTD, is_causal=True, scale=scale, enable_gqa=grouped
    )
    return attended_1HTD.transpose(1, 2)


def score(model: Any, ids: IntArray, temperature: float) -> FloatArray:
    """Log-probability of each token but the first, float32[T - 1], at a positive temperature."""
    ids_T = torch.as_tensor(ids, dtype=torch.int64, device=model.device)
    output = model.base_model(
        input_ids=ids_T[None, :-1],
        position_ids=torch.arange(len(ids) - 1, device=model.device)[None],
        use_cache=False,
        step=causal_attention,
    )
    temperatures = torch.full((len(ids) - 1,), temperature, device=model.device)
    weight = model.get_output_embeddings().weight
    logprobs, _ = token_logprobs(
        output.last_hidden_state[0], weight, ids_T[1:], temperatures, _PLAN
    )
    scored: FloatArray = logprobs.cpu().numpy()
    return scored
