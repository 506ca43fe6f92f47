"""Layer specs: what Megatron makes each layer of.

Megatron's own spec or Transformer Engine's, by ``TransformerConfig.transformer_impl``; in both the
core attention that the options name, the router that replays, and linear layers that may have an
adapter. Nothing of Megatron is replaced at run time.

It makes no layers.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import NamedTuple

from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.transformer import TransformerConfig
from megatron.core.transformer.spec_utils import ModuleSpec
from megatron.core.transformer.transformer_block import TransformerBlockSubmodules

from axisrl.errors import ConfigError
from axisrl_megatron.attention import CoreAttention
from axisrl_megatron.lora import AdaptedColumn, AdaptedRow
from axisrl_megatron.mixture import Layer, Router
from axisrl_megatron.norm import Norm

ENGINE = "transformer_engine"


class LayerKind(NamedTuple):
    """What the options say of all layers."""

    attention: str
    """The core attention, ``module:class``."""
    adapted: bool
    """Linear layers get adapters, which add to their outputs."""


def block_spec(
    config: TransformerConfig, kind: LayerKind, sparse: Sequence[bool]
) -> TransformerBlockSubmodules:
    """Of a run of layers; ``sparse`` says which are mixtures of experts.

    Raises ``ConfigError`` when there is no such core attention.
    """
    core = _class_of(kind.attention)
    if config.context_parallel_size > 1 and not issubclass(core, CoreAttention):
        raise ConfigError(
            f"trainer.attention {kind.attention} would see the tokens of its own rank alone",
            fix="derive it from axisrl_megatron.attention:CoreAttention, or leave out "
            "trainer.context",
        )
    norm: type = Norm
    if config.transformer_impl == ENGINE:
        from axisrl_megatron.engine_layers import TENorm

        norm = TENorm
    made = {each: _layer_spec(config, kind, core, sparse=each) for each in set(sparse)}
    return TransformerBlockSubmodules(layer_specs=[made[each] for each in sparse], layer_norm=norm)


def _layer_spec(
    config: TransformerConfig, kind: LayerKind, core: type, *, sparse: bool
) -> ModuleSpec:
    if config.transformer_impl == ENGINE:
        from axisrl_megatron.engine_layers import engine_spec

        spec = engine_spec(config, sparse=sparse, adapted=kind.adapted)
    else:
        spec = _local_spec(config, sparse=sparse)
    layer = spec.submodules
    layer.self_attention.submodules.core_attention = core
    if sparse:
        layer.mlp.submodules.router, spec.module = Router, Layer
    return spec


def _local_spec(config: TransformerConfig, *, sparse: bool) -> ModuleSpec:
    spec = get_gpt_layer_local_spec(
        num_experts=config.num_moe_experts if sparse else None,
        qk_layernorm=config.qk_layernorm,
        normalization=config.normalization,
    )
    layer = spec.submodules
    layer.input_layernorm = layer.pre_mlp_layernorm = Norm
    heads = layer.self_attention.submodules
    heads.linear_qkv, heads.linear_proj = AdaptedColumn, AdaptedRow
    if config.qk_layernorm:
        heads.q_layernorm = heads.k_layernorm = Norm
    if not sparse:
        feed = layer.mlp.submodules
        feed.linear_fc1, feed.linear_fc2 = AdaptedColumn, AdaptedRow
    return spec


def _class_of(attention: str) -> type:
    module, _, name = attention.partition(":")
    try:
        found: type = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as problem:
        raise ConfigError(
            f"trainer.attention {attention!r} cannot be imported: {problem}",
            fix="name a class as module:class",
        ) from problem
    return found
