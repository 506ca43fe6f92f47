"""From a Hugging Face config to Megatron's: which models there are, and what they are made of.

mbridge, which other frameworks use, is not used: it reads fields that transformers 5 no longer has
(``rope_theta``), names weights for Transformer Engine's layer spec alone, and moves every tensor to
a CUDA device. It loads no weights (:mod:`axisrl_megatron.weights`). Importing it brings neither
torch nor transformers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl_megatron.layout import ModelShape

if TYPE_CHECKING:
    import torch
    from torch import Tensor

FAMILIES: Mapping[str, Mapping[str, bool]] = {
    "llama": {},
    "qwen2": {"add_qkv_bias": True},
    "qwen3": {"qk_layernorm": True},
    "qwen3_moe": {"qk_layernorm": True},
}
"""``model_type`` -> what its layers have beside a Llama's."""
_FALSE = ("attention_bias", "mlp_bias", "use_sliding_window")
"""Fields that must be false or absent."""


def read_fields(folder: Path) -> Mapping[str, Any]:
    """What config.json of a model folder says, of a family that is known; reads nothing else.

    Raises ``EnvironmentProblem`` when there is none or it says what Megatron's layers would not do.
    """
    path = folder / "config.json"
    if not path.is_file():
        raise EnvironmentProblem(
            f"{folder} has no config.json", fix="check model.name; `axisrl models` lists names"
        )
    fields: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    wrong = [f"{name} true" for name in _FALSE if fields.get(name)]
    family, activation = fields.get("model_type"), fields.get("hidden_act", "silu")
    if family not in FAMILIES:
        wrong.append(f"model_type {family}, none of {', '.join(FAMILIES)}")
    if activation != "silu":
        wrong.append(f"hidden_act {activation}, not silu")
    if wrong:
        raise EnvironmentProblem(
            f"the model in {folder} has {'; '.join(wrong)}",
            fix="train it with local/trainer, or choose a Llama, Qwen2, Qwen3 or Qwen3-MoE model",
        )
    return fields


def read_config(folder: Path) -> Any:
    """The transformers config of a model folder. Raises as :func:`read_fields`."""
    from transformers import AutoConfig

    read_fields(folder)
    return AutoConfig.from_pretrained(folder, local_files_only=True)


def sparse_layers(fields: Mapping[str, Any]) -> tuple[bool, ...]:
    """Which layers are mixtures of experts, as transformers decides it."""
    layers = range(fields["num_hidden_layers"])
    if not _experts(fields):
        return (False,) * len(layers)
    dense, step = fields.get("mlp_only_layers") or (), fields.get("decoder_sparse_step", 1)
    return tuple(number not in dense and (number + 1) % step == 0 for number in layers)


def _experts(fields: Mapping[str, Any]) -> int:
    """0 for a dense model. transformers has renamed the field."""
    if fields["model_type"] != "qwen3_moe":
        return 0
    return int(fields.get("num_experts") or fields.get("num_local_experts") or 0)


def shape_of(fields: Mapping[str, Any]) -> ModelShape:
    """What a layout must divide."""
    heads, sparse = fields["num_attention_heads"], sparse_layers(fields)
    return ModelShape(
        layers=fields["num_hidden_layers"],
        heads=heads,
        key_value_heads=fields.get("num_key_value_heads") or heads,
        intermediate=0 if all(sparse) else fields["intermediate_size"],
        vocabulary=fields["vocab_size"],
        experts=_experts(fields) if any(sparse) else 0,
        expert_intermediate=fields["moe_intermediate_size"] if any(sparse) else 0,
    )


def head_size(config: Any) -> int:
    """Numbers of one attention head."""
    size: int | None = getattr(config, "head_dim", None)
    return size or config.hidden_size // config.num_attention_heads


def architecture(config: Any) -> dict[str, Any]:
    """Options of ``TransformerConfig`` that are the model's."""
    import torch

    return {
        "num_layers": config.num_hidden_layers,
        "hidden_size": config.hidden_size,
        "ffn_hidden_size": config.intermediate_size,
        "num_attention_heads": config.num_attention_heads,
        "num_query_groups": config.num_key_value_heads,
        "kv_channels": head_size(config),
        "normalization": "RMSNorm",
        "layernorm_epsilon": config.rms_norm_eps,
        "gated_linear_unit": True,
        "activation_func": torch.nn.functional.silu,
        "add_bias_linear": False,
        **FAMILIES[config.model_type],
        **(_mixture(config) if any(sparse_layers(config.to_dict())) else {}),
    }


def _mixture(config: Any) -> dict[str, Any]:
    """A softmax in float32 of logits in the model's type, as transformers has it. Over the chosen
    experts it is the softmax over all with their sum made 1."""
    return {
        "num_moe_experts": config.num_experts,
        "moe_ffn_hidden_size": config.moe_intermediate_size,
        "moe_router_topk": config.num_experts_per_tok,
        "moe_router_pre_softmax": not config.norm_topk_prob,
        "moe_router_load_balancing_type": "none",
    }


def inverse_frequencies(config: Any, device: torch.device) -> Tensor:
    """Of the rotation of positions, float32 (head size / 2,), as transformers computes them.

    Raises ``ConfigError`` for a kind of scaling that also scales the attention or changes with the
    length of a row.
    """
    import torch
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    kind = config.rope_parameters.get("rope_type", "default")
    if kind == "default":
        base, size = config.rope_parameters["rope_theta"], head_size(config)
        found = 1.0 / (base ** (torch.arange(0, size, 2, dtype=torch.float32) / size))
    elif kind in ("linear", "llama3"):
        found = ROPE_INIT_FUNCTIONS[kind](config, torch.device("cpu"))[0]
    else:
        raise ConfigError(
            f"the model scales its rotary positions by {kind}, which megatron/trainer does not",
            fix="train it with local/trainer",
        )
    return torch.as_tensor(found).to(device)
