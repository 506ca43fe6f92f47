"""Which Hugging Face tensors a Megatron parameter is made of, and how, whole or a rank's part.

1. A rank's part of a parameter is made of the same part of each Hugging Face tensor: Megatron
   divides query, key and value by heads, gate and up by columns.
2. Names are those of Megatron's layer specs, counted over all layers: its own layers', and
   Transformer Engine's, which may have a norm inside the linear layer after it, and have all
   experts of a rank in one layer.

It moves nothing between ranks and reads no file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from axisrl.ops.low_rank import factor_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How one parameter is made."""

    names: tuple[str, ...]
    """Of the Hugging Face tensors."""
    axis: int | None = None
    """Along which ranks share them; None is whole on each."""
    vocabulary: bool = False
    """The axis counts tokens, and is padded until ranks divide it."""
    head_size: int = 0
    """Above 0 the three are query, key and value, interleaved by key-value heads."""
    expert: bool = False
    """Of an expert: other ranks have other experts, and share the columns of each."""
    per_head: bool = False
    """Whole on each rank, and used with its own heads alone: gradients are parts of a sum."""

    def join(self, parts: Sequence[Tensor]) -> Tensor:
        """The parameter, from its tensors."""
        if not self.head_size:
            return parts[0] if len(parts) == 1 else torch.cat(list(parts))
        groups = len(parts[1]) // self.head_size
        grouped = [part.reshape(groups, -1, *part.shape[1:]) for part in parts]
        return torch.cat(grouped, dim=1).flatten(0, 1)

    def split(self, parameter: Tensor, groups: int = 1) -> list[Tensor]:
        """Inverse of :meth:`join`; ``groups`` are the key-value heads that are here."""
        if not self.head_size:
            return list(parameter.chunk(len(self.names)))
        grouped = parameter.reshape(groups, -1, *parameter.shape[1:])
        sizes = [grouped.shape[1] - 2 * self.head_size, self.head_size, self.head_size]
        return [part.flatten(0, 1) for part in grouped.split(sizes, dim=1)]  # type: ignore[no-untyped-call]


LAYERS = "decoder.layers."
_QKV = ("self_attention.linear_qkv.weight", "self_attention.linear_qkv.bias")
EMBEDDING = "embedding.word_embeddings.weight"
OUTPUT = "output_layer.weight"
_WHOLE = {
    EMBEDDING: ("model.embed_tokens.weight", 0),
    OUTPUT: ("lm_head.weight", 0),
    "decoder.final_layernorm.weight": ("model.norm.weight", None),
    "score.weight": ("score.weight", None),
    "score.bias": ("score.bias", None),
}
_LAYER = {
    "input_layernorm.weight": (("input_layernorm.weight",), None),
    "self_attention.linear_qkv.layer_norm_weight": (("input_layernorm.weight",), None),
    "self_attention.linear_qkv.weight": (
        ("self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"),
        0,
    ),
    "self_attention.linear_qkv.bias": (
        ("self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"),
        0,
    ),
    "self_attention.q_layernorm.weight": (("self_attn.q_norm.weight",), None),
    "self_attention.k_layernorm.weight": (("self_attn.k_norm.weight",), None),
    "self_attention.linear_proj.weight": (("self_attn.o_proj.weight",), 1),
    "pre_mlp_layernorm.weight": (("post_attention_layernorm.weight",), None),
    "mlp.linear_fc1.layer_norm_weight": (("post_attention_layernorm.weight",), None),
    "mlp.linear_fc1.weight": (("mlp.gate_proj.weight", "mlp.up_proj.weight"), 0),
    "mlp.linear_fc2.weight": (("mlp.down_proj.weight",), 1),
    "mlp.router.weight": (("mlp.gate.weight",), None),
}
_EXPERTS, _LOCAL = "mlp.experts.", "local_experts."
ADAPTERS = ".adapters."


def rule_of(parameter: str, head_size: int, first_expert: int = 0) -> Rule:
    """The rule for a parameter by its name; the experts here are counted from ``first_expert``
    on. Raises ``KeyError`` for one that is not known."""
    if parameter in _WHOLE:
        name, axis = _WHOLE[parameter]
        return Rule(names=(name,), axis=axis, vocabulary=axis == 0)
    if ADAPTERS in parameter:
        return _factor(parameter, head_size)
    number, _, rest = parameter.removeprefix(LAYERS).partition(".")
    if rest.startswith(_EXPERTS):
        return _expert_rule(number, rest.removeprefix(_EXPERTS), first_expert)
    names, axis = _LAYER[rest]
    return Rule(
        names=tuple(f"model.layers.{number}.{name}" for name in names),
        axis=axis,
        head_size=head_size if rest in _QKV else 0,
        per_head=rest in ("self_attention.q_layernorm.weight", "self_attention.k_layernorm.weight"),
    )


def _expert_rule(layer: str, parameter: str, first: int) -> Rule:
    if parameter.startswith(_LOCAL):
        number, _, rest = parameter.removeprefix(_LOCAL).partition(".")
    else:  # all of a rank's in one layer, as linear_fc1.weight3
        linear, _, number = parameter.partition(".weight")
        rest = f"{linear}.weight"
    names, axis = _LAYER[f"mlp.{rest}"]
    folder = f"model.layers.{layer}.mlp.experts.{first + int(number)}"
    return Rule(
        names=tuple(f"{folder}.{name.removeprefix('mlp.')}" for name in names),
        axis=axis,
        expert=True,
    )


def _factor(parameter: str, head_size: int) -> Rule:
    """For A or B of a low-rank adapter: one of them is divided as its layer is."""
    layer, _, rest = parameter.partition(ADAPTERS)
    leaf, _, factor = rest.partition(".")
    whole = rule_of(f"{layer}.weight", head_size)
    (weight,) = (name for name in whole.names if name.endswith(f".{leaf}.weight"))
    a, b = factor_names(weight.removesuffix(".weight"))
    name, divided = (a, 1) if factor == "A" else (b, 0)
    return Rule(names=(name,), axis=divided if whole.axis == divided else None)


def linear_layers() -> list[str]:
    """Ends of the Hugging Face names of a layer's linear layers, in order."""
    return [
        name.removesuffix(".weight")
        for parameter, (names, _) in _LAYER.items()
        for name in names
        if ".linear_" in parameter and parameter.endswith(".weight")
    ]
