"""Layers of Transformer Engine, as Megatron's spec for it has them.

1. A norm is part of the linear layer after it, where that layer has no adapter (which needs what
   comes out of the norm) and the residual stream has the weights' type (Transformer Engine refuses
   another).
2. A mixture's experts are one layer, whose products are computed together.
3. Attention over packed rows is not Transformer Engine's (:mod:`axisrl_megatron.specs`).

Importing it needs Transformer Engine (:func:`axisrl_megatron.device.check_layers`).
"""

from __future__ import annotations

from megatron.core.extensions.transformer_engine import (
    TEColumnParallelLinear,
    TENorm,
    TERowParallelLinear,
)
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_with_transformer_engine_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.spec_utils import ModuleSpec

from axisrl_megatron.lora import ColumnAdapters, RowAdapters

__all__ = ["EngineColumn", "EngineRow", "TENorm", "engine_spec"]


class EngineColumn(ColumnAdapters, TEColumnParallelLinear):  # type: ignore[misc]
    """Transformer Engine's linear layer of which each rank has some of the outputs."""


class EngineRow(RowAdapters, TERowParallelLinear):  # type: ignore[misc]
    """Transformer Engine's linear layer of which each rank has some of the inputs."""


def engine_spec(config: TransformerConfig, *, sparse: bool, adapted: bool) -> ModuleSpec:
    """Of a layer, ``sparse`` if it is a mixture of experts; ``adapted`` if it may get adapters."""
    spec: ModuleSpec = get_gpt_layer_with_transformer_engine_spec(
        num_experts=config.num_moe_experts if sparse else None,
        moe_grouped_gemm=config.moe_grouped_gemm,
        qk_layernorm=config.qk_layernorm,
        use_te_activation_func=config.use_te_activation_func,
    )
    if adapted or config.fp32_residual_connection:
        layer = spec.submodules
        layer.input_layernorm = layer.pre_mlp_layernorm = TENorm
        heads = layer.self_attention.submodules
        heads.linear_qkv, heads.linear_proj = EngineColumn, EngineRow
        if not sparse:
            feed = layer.mlp.submodules
            feed.linear_fc1, feed.linear_fc2 = EngineColumn, EngineRow
    return spec
