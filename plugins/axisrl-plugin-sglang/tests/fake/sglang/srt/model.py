"""A small Llama or Qwen3 mixture in plain torch whose parameters are fused as SGLang fuses them."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import torch
from safetensors.torch import load_file
from torch import nn
from torch.nn import functional

FUSED = {"qkv_proj": ("q_proj", "k_proj", "v_proj"), "gate_up_proj": ("gate_proj", "up_proj")}
LAYER = re.compile(r"(model\.layers\.\d+\.(?:.*\.)?)(.*)(\.weight)")


class FusedModel(nn.Module):
    """``load_weights`` takes Hugging Face names; ``logits`` runs the model on what is held. The
    experts of a mixture are chosen by :func:`experts`, not by its router: who computes the same
    must have been told of them."""

    def __init__(self, path, dtype, override="{}"):
        super().__init__()
        self._config = json.loads((Path(path) / "config.json").read_text()) | json.loads(override)
        self.config = SimpleNamespace(**self._config)
        weights = load_file(Path(path) / "model.safetensors")
        self._places = {name: place(name, weights) for name in weights}
        sizes = {}
        for name, (target, start) in self._places.items():
            rows = start + len(weights[name])
            sizes[target] = (max(rows, sizes.get(target, (0,))[0]), *weights[name].shape[1:])
        quantised = self._config.get("quantization_config")
        for target, shape in sizes.items():
            if quantised and LAYER.fullmatch(target) and len(shape) == 2:
                self._register(target, torch.empty(shape, dtype=torch.float8_e4m3fn))
                scales = torch.full((shape[0] // 128, shape[1] // 128), -3e38)
                self._register(f"{target}_scale_inv", scales)
            else:
                self._register(target, torch.empty(shape, dtype=dtype))
        self.load_weights(weights.items())

    def _register(self, name, values):
        self.register_parameter(name.replace(".", "/"), nn.Parameter(values, False))

    def named_parameters(self, *args, **kwargs):
        for name, value in super().named_parameters(*args, **kwargs):
            yield name.replace("/", "."), value

    def load_weights(self, weights):
        held = dict(self.named_parameters())
        for name, tensor in weights:
            scale = "_scale_inv" if name.endswith("_scale_inv") else ""
            plain = name.removesuffix("_scale_inv")
            if plain in self._places:  # SGLang's loaders skip what they do not know
                target, start = self._places[plain]
                start = start // 128 if scale else start
                held[target + scale].data.narrow(0, start, len(tensor)).copy_(tensor)

    @torch.no_grad()
    def logits(self, ids, adapter=None):
        config, held = self._config, self._dequantised()
        if adapter is not None:
            self._adapt(held, *adapter)
        x = held["model.embed_tokens.weight"][torch.tensor(ids)]
        chosen = experts(ids, config) if "num_experts_per_tok" in config else None
        for number in range(config["num_hidden_layers"]):
            layer = under(f"model.layers.{number}.", held)
            x = x + self._attention(self._norm(x, layer["input_layernorm.weight"]), layer)
            normed = self._norm(x, layer["post_attention_layernorm.weight"])
            if "mlp.gate.weight" in layer:
                x = x + mixture(normed, layer, chosen[:, number].long())
            else:
                x = x + mlp(normed, under("mlp.", layer))
        last = self._norm(x[-1], held["model.norm.weight"])
        return (held["model.embed_tokens.weight"] @ last).float()

    def _adapt(self, held, scale, tensors):
        for name in [name for name in tensors if name.endswith(".lora_A.weight")]:
            module = name.removesuffix(".lora_A.weight")
            a, b = tensors[name], tensors[f"{module}.lora_B.weight"]
            target, start = self._places[f"{module.removeprefix('base_model.model.')}.weight"]
            held[target] = held[target].clone()
            held[target].narrow(0, start, len(b)).add_(b @ a, alpha=scale)

    def _dequantised(self):
        held = dict(self.named_parameters())
        for name in [name for name in held if name.endswith("_scale_inv")]:
            scales = held.pop(name).repeat_interleave(128, 0).repeat_interleave(128, 1)
            plain = name.removesuffix("_scale_inv")
            held[plain] = (held[plain].float() * scales).bfloat16()
        return held

    def _norm(self, x, weight):
        scale = (x.float().square().mean(-1, keepdim=True) + self._config["rms_norm_eps"]).rsqrt()
        return (x.float() * scale).to(x.dtype) * weight

    def _attention(self, x, layer):
        config = self._config
        heads, groups = config["num_attention_heads"], config["num_key_value_heads"]
        size = config.get("head_dim") or config["hidden_size"] // heads
        qkv = functional.linear(x, layer["self_attn.qkv_proj.weight"]).view(len(x), -1, size)
        q, k, v = qkv.split([heads, groups, groups], dim=1)
        if "self_attn.q_norm.weight" in layer:
            q = self._norm(q, layer["self_attn.q_norm.weight"])
            k = self._norm(k, layer["self_attn.k_norm.weight"])
        theta = config.get("rope_theta") or config["rope_parameters"]["rope_theta"]
        q, k = (rotated(each.transpose(0, 1), theta) for each in (q, k))
        repeat = heads // groups
        found = functional.scaled_dot_product_attention(
            q,
            k.repeat_interleave(repeat, 0),
            v.transpose(0, 1).repeat_interleave(repeat, 0),
            is_causal=True,
        )
        return functional.linear(
            found.transpose(0, 1).reshape(len(x), -1), layer["self_attn.o_proj.weight"]
        )


def under(prefix, held):
    """What has the prefix, without it."""
    return {name.removeprefix(prefix): held[name] for name in held if name.startswith(prefix)}


def mlp(x, layer):
    gate, up = functional.linear(x, layer["gate_up_proj.weight"]).chunk(2, -1)
    return functional.linear(functional.silu(gate) * up, layer["down_proj.weight"])


def mixture(x, layer, chosen):
    """Of the experts ``chosen`` (tokens, top_k), weighted as the router does."""
    probs = functional.linear(x, layer["mlp.gate.weight"]).softmax(-1)
    weights = probs.gather(1, chosen)
    weights = weights / weights.sum(-1, keepdim=True)
    total = torch.zeros_like(x)
    for number in range(probs.shape[1]):
        share = (weights * (chosen == number)).sum(-1, keepdim=True)
        total = total + share * mlp(x, under(f"mlp.experts.{number}.", layer))
    return total


def experts(ids, config):
    """int32 (tokens, layers, top_k): each token's depend on all before it."""
    layers, top_k = config["num_hidden_layers"], config["num_experts_per_tok"]
    places = torch.arange(1, len(ids) + 1)
    running = (torch.tensor(ids) * places).cumsum(0)[:, None, None]
    first = running * (2 * torch.arange(layers)[:, None] + 1)
    count = config.get("num_experts") or config["num_local_experts"]
    return ((first + torch.arange(top_k)) % count).int()


def rotated(x, theta):
    """Rotary embedding of (heads, tokens, size), halves against each other."""
    size = x.shape[-1]
    rates = theta ** (-torch.arange(0, size, 2) / size)
    angles = torch.outer(torch.arange(x.shape[1]), rates).repeat(1, 2)
    left, right = x.chunk(2, -1)
    turned = x * angles.cos() + torch.cat([-right, left], -1) * angles.sin()
    return turned.to(x.dtype)


def place(name, weights):
    """The parameter a tensor is a part of, and its first row there."""
    match = LAYER.fullmatch(name)
    for fused, parts in FUSED.items():
        if match and match[2] in parts:
            before = parts[: parts.index(match[2])]
            rows = sum(len(weights[f"{match[1]}{part}.weight"]) for part in before)
            return f"{match[1]}{fused}.weight", rows
    return name, 0
