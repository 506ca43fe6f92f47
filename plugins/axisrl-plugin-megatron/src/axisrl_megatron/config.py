"""Options of the trainer. Imports neither torch nor Megatron."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from axisrl.config.lora import LoraOptions
from axisrl.config.training import TrainingOptions

_MODELS = "it is the model's"
_DTYPE = "it is model.dtype"
_WEIGHTS = "weights come from the model's folder"
_DROPOUT = "a policy under dropout is not the policy that was sampled"
_OTHER = "a model of the families the trainer knows has no such thing"
_STAGES = "stages have equal numbers of layers"
_SCHEDULE = "it follows from trainer.pipeline and trainer.virtual"
_BALANCE = (
    "Megatron adds it to each micro-batch with the same weight, whatever its share of the loss, "
    "so that the gradient would depend on the packing"
)
_DROPS = "a token whose experts are full would be scored by another model than it was sampled from"
_GRAPHS = "packed batches have unequal lengths, and a graph has one"
_EXPERTS = (
    "it follows from trainer.transformer_impl, whose experts are computed together or one by one"
)
_LENGTHS = "its products take multiples of 16 tokens, and packed batches have any number"
_BUFFERS = "its buffers have one size, and packed batches have many"
OWNED = {
    "tensor_model_parallel_size": "it is trainer.tensor",
    "pipeline_model_parallel_size": "it is trainer.pipeline",
    "virtual_pipeline_model_parallel_size": "it is trainer.virtual",
    "pipeline_model_parallel_layout": _STAGES,
    "num_layers_in_first_pipeline_stage": _STAGES,
    "num_layers_in_last_pipeline_stage": _STAGES,
    "account_for_embedding_in_pipeline_split": _STAGES,
    "account_for_loss_in_pipeline_split": _STAGES,
    "microbatch_group_size_per_vp_stage": _SCHEDULE,
    "num_microbatches_with_partial_activation_checkpoints": _SCHEDULE,
    "overlap_p2p_comm": _SCHEDULE,
    "batch_p2p_comm": _SCHEDULE,
    "use_ring_exchange_p2p": _SCHEDULE,
    "deallocate_pipeline_outputs": _SCHEDULE,
    "overlap_p2p_comm_warmup_flush": "batches of unequal lengths do not pass by that schedule",
    "calculate_per_token_loss": "losses are numerators, which nothing divides",
    "context_parallel_size": "it is trainer.context",
    "expert_model_parallel_size": "it is trainer.expert",
    "expert_tensor_parallel_size": "it is trainer.expert_tensor",
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
    "num_moe_experts": _MODELS,
    "moe_ffn_hidden_size": _MODELS,
    "moe_layer_freq": _MODELS,
    "moe_router_topk": _MODELS,
    "moe_router_pre_softmax": _MODELS,
    "moe_router_score_function": _MODELS,
    "moe_router_num_groups": _OTHER,
    "moe_router_group_topk": _OTHER,
    "moe_router_topk_limited_devices": _OTHER,
    "moe_router_topk_scaling_factor": _OTHER,
    "moe_router_enable_expert_bias": _OTHER,
    "moe_shared_expert_intermediate_size": _OTHER,
    "moe_shared_expert_gate": _OTHER,
    "moe_latent_size": _OTHER,
    "moe_apply_probs_on_input": _OTHER,
    "moe_router_load_balancing_type": _BALANCE,
    "moe_aux_loss_coeff": _BALANCE,
    "moe_z_loss_coeff": _BALANCE,
    "moe_expert_capacity_factor": _DROPS,
    "moe_pad_expert_input_to_capacity": _DROPS,
    "moe_token_dropping": _DROPS,
    "moe_input_jitter_eps": _DROPOUT,
    "moe_router_force_load_balancing": _DROPOUT,
    "moe_token_dispatcher_type": "batches of unequal length need Megatron's alltoall",
    "moe_enable_routing_replay": "it is rollout.routing",
    "moe_router_fusion": "a fused router could not choose what rollout.routing kept",
    "transformer_impl": "it is trainer.transformer_impl",
    "use_transformer_engine_op_fuser": "trainer.transformer_impl has no such layers",
    "moe_grouped_gemm": _EXPERTS,
    "moe_use_legacy_grouped_gemm": _EXPERTS,
    "fp8": _LENGTHS,
    "fp4": _LENGTHS,
    "tp_comm_overlap": _BUFFERS,
    "delay_wgrad_compute": _SCHEDULE,
    "mtp_num_layers": _OTHER,
    "enable_cuda_graph": _GRAPHS,
    "external_cuda_graph": _GRAPHS,
    "cuda_graph_impl": _GRAPHS,
    "cuda_graph_scope": _GRAPHS,
    "enable_autocast": _DTYPE,
    "autocast_dtype": _DTYPE,
    "init_model_with_meta_device": _WEIGHTS,
    "overlap_moe_expert_parallel_comm": _SCHEDULE,
    "cpu_offloading": "where memory lacks, recompute_granularity computes activations again",
    "fine_grained_activation_offloading": "only Megatron's GPTModel starts it, which is not used",
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
    pipeline: int = 1
    """Stages, each with its part of the layers, through which micro-batches pass one after another:
    pipeline parallel, on GPUs. ``pipeline`` times ``virtual`` divides the model's layers."""
    virtual: int = 1
    """Parts into which each stage's layers are divided, so that stages wait less: the interleaved
    schedule."""
    expert: int = 1
    """Ranks that share the experts of a mixture, each with some of them whole: expert parallel.
    They are among those that share layers or batches."""
    expert_tensor: int = 1
    """Ranks that share each of those experts."""
    transformer_impl: Literal["local", "transformer_engine"] = "local"
    """Whose layers: Megatron's own, or those of Transformer Engine, which must be installed, on a
    GPU: fused norms, and products of a mixture's experts all at once. Weights, checkpoints and
    attention are the same with either, numbers as nearly as kernels differ (float32 products are
    TF32 in Transformer Engine)."""
    attention: str = "axisrl_megatron.attention:RowAttention"
    """The core attention of every layer, ``module:class``: what stands in Megatron's layer spec."""
    lora: LoraOptions | None = None
    """Train a low-rank adapter (``rank``, ``alpha``, ``targets``, ``update``; ``dropout`` is 0) and
    keep the weights as they are; null trains the weights. A frozen model ignores it."""
    megatron: Mapping[str, Any] = field(default_factory=dict)
    """Any option of Megatron's ``TransformerConfig`` by its name, such as ``recompute_granularity:
    full``. Names and types are checked against the Megatron installed."""

    def __post_init__(self) -> None:
        TrainingOptions.__post_init__(self)
        for name in ("tensor", "pipeline", "virtual", "context", "expert", "expert_tensor"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} {getattr(self, name)} must be >= 1")
        if self.virtual > 1 and self.pipeline == 1:
            raise ValueError(f"virtual {self.virtual} needs pipeline above 1")
        if self.sequence and self.tensor == 1:
            raise ValueError("sequence true needs tensor above 1: 1 rank has every token")
        if self.lora is not None and self.lora.dropout:
            raise ValueError(f"lora.dropout {self.lora.dropout} must be 0: {_DROPOUT}")
        if self.megatron.get("use_te_activation_func") and self.transformer_impl == "local":
            needed = "transformer_impl: transformer_engine"
            raise ValueError(f"megatron.use_te_activation_func needs {needed}")
        module, colon, name = self.attention.partition(":")
        if not (module and colon and name):
            raise ValueError(f"attention {self.attention!r} is not module:class")
        for name in sorted(self.megatron.keys() & OWNED.keys()):
            raise ValueError(f"megatron.{name} cannot be set: {OWNED[name]}")
