"""Options of the trainer. Imports neither torch nor Megatron."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from axisrl.config.training import TrainingOptions

_MODELS = "it is the model's"
_DTYPE = "it is model.dtype"
_WEIGHTS = "weights come from the model's folder"
_DROPOUT = "a policy under dropout is not the policy that was sampled"
_OTHER = "a model of the families the trainer knows has no such thing"
_ONE = "the trainer does not divide a model that way"
OWNED = {
    "tensor_model_parallel_size": "it is trainer.tensor",
    "pipeline_model_parallel_size": _ONE,
    "virtual_pipeline_model_parallel_size": _ONE,
    "context_parallel_size": "it is trainer.context",
    "expert_model_parallel_size": _ONE,
    "expert_tensor_parallel_size": _ONE,
    "sequence_parallel": "it is trainer.sequence",
    "bf16": _DTYPE,
    "fp16": _DTYPE,
    "params_dtype": _DTYPE,
    "pipeline_dtype": _DTYPE,
    "hidden_dropout": _DROPOUT,
    "attention_dropout": _DROPOUT,
    "use_cpu_initialization": _WEIGHTS,
    "perform_initialization": _WEIGHTS,
    "variable_seq_lengths": "packed batches have unequal lengths",
    "attention_backend": "it is trainer.attention",
    "num_layers": _MODELS,
    "hidden_size": _MODELS,
    "ffn_hidden_size": _MODELS,
    "num_attention_heads": _MODELS,
    "num_query_groups": _MODELS,
    "kv_channels": _MODELS,
    "normalization": _MODELS,
    "layernorm_epsilon": _MODELS,
    "qk_layernorm": _MODELS,
    "add_qkv_bias": _MODELS,
    "add_bias_linear": _MODELS,
    "gated_linear_unit": _MODELS,
    "activation_func": _MODELS,
    "softmax_scale": _MODELS,
    "rotary_interleaved": _OTHER,
    "no_rope_freq": _OTHER,
    "glu_linear_offset": _OTHER,
    "activation_func_clamp_value": _OTHER,
    "softmax_type": _OTHER,
    "window_size": _OTHER,
    "window_attn_skip_freq": _OTHER,
    "layernorm_zero_centered_gamma": _OTHER,
    "attention_output_gate": _OTHER,
    "multi_latent_attention": _OTHER,
    "num_moe_experts": _OTHER,
    "mtp_num_layers": _OTHER,
    "gradient_accumulation_fusion": "the optimizer takes gradients from where torch puts them",
}
"""Megatron's options that the trainer sets itself, and where to say what they should be."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MegatronConfig(TrainingOptions):
    """Options of ``megatron/trainer``."""

    tensor: int = 1
    """Ranks (of ``placement.trainer_ranks``) that share each layer: tensor parallel. The others are
    data parallel. Frozen models are held whole by one process."""
    context: int = 1
    """Ranks that divide the tokens of each packed batch, for rows that are too long for one:
    context parallel. Each layer's attention puts their keys and values together."""
    sequence: bool = False
    """The ranks of ``tensor`` divide the tokens between the matrix products of a layer, too, so
    that norms and residuals take less memory: sequence parallel."""
    attention: str = "axisrl_megatron.attention:RowAttention"
    """The core attention of every layer, ``module:class``: what stands in Megatron's layer spec."""
    megatron: Mapping[str, Any] = field(default_factory=dict)
    """Any option of Megatron's ``TransformerConfig`` by its name, such as ``recompute_granularity:
    full``. Names and types are checked against the Megatron installed."""

    def __post_init__(self) -> None:
        TrainingOptions.__post_init__(self)
        for name, size in (("tensor", self.tensor), ("context", self.context)):
            if size < 1:
                raise ValueError(f"{name} {size} must be >= 1")
        if self.sequence and self.tensor == 1:
            raise ValueError("sequence true needs tensor above 1: 1 rank has every token")
        module, colon, name = self.attention.partition(":")
        if not (module and colon and name):
            raise ValueError(f"attention {self.attention!r} is not module:class")
        for name in sorted(self.megatron.keys() & OWNED.keys()):
            raise ValueError(f"megatron.{name} cannot be set: {OWNED[name]}")
