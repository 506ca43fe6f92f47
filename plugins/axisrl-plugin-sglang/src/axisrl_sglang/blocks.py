"""What ``engine.fp8`` asks of SGLang and of a model's shapes. Imports neither torch nor SGLang.

SGLang can quantise by itself when it starts (``quantization: fp8``), but then replaces the
parameters that new weights would be loaded into. As a checkpoint of FP8 blocks it keeps them: so it
is told that the model is one (``quantization_config``), and the engine makes the blocks
(:mod:`axisrl_sglang.fp8`) of whatever weights come.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

from axisrl.errors import ConfigError
from axisrl.types import ModelSpec

BLOCK = 128
"""Rows and columns that share a scale."""
_FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"))
"""Modules that SGLang holds as one: all of their type, or none."""


class _Side(NamedTuple):
    """A side of a module's weight that has to be whole blocks, and how long it is in one rank."""

    module: str
    side: str
    made_of: str
    length: int


def block_arguments(given: Mapping[str, Any], skip: Collection[str]) -> dict[str, Any]:
    """Server arguments that let SGLang hold FP8 blocks, added to those given."""
    override = json.loads(given.get("json_model_override_args") or "{}")
    override["quantization_config"] = {
        "quant_method": "fp8",
        "activation_scheme": "dynamic",
        "weight_block_size": [BLOCK, BLOCK],
        "modules_to_not_convert": sorted(skip),
    }
    return {"json_model_override_args": json.dumps(override)}


def check_blocks(model: ModelSpec, ranks: int, skip: Collection[str]) -> None:
    """Raise ``ConfigError`` when weights cannot be cut into blocks, with the arithmetic. A model
    whose config.json names its sizes otherwise is left to SGLang."""
    if model.dtype == "float32":
        raise ConfigError(
            "engine.fp8: SGLang computes with FP8 weights in bfloat16 or float16, and model.dtype "
            "is float32",
            fix="set model.dtype to bfloat16",
        )
    config = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
    text: Mapping[str, Any] = config.get("text_config") or config
    wrong = [each for each in _sides(text, ranks) if each.length % BLOCK and not _in(each, skip)]
    if not wrong:
        return
    told = "; ".join(
        f"{each.module} has {each.made_of} = {each.length} = {each.length // BLOCK} x {BLOCK} + "
        f"{each.length % BLOCK} {each.side}"
        for each in wrong
    )
    left = (name for each in wrong for name in _fused_with(each.module))
    modules = ", ".join(dict.fromkeys([*skip, *left]))
    raise ConfigError(
        f"engine.fp8 cuts weights into blocks of {BLOCK} x {BLOCK}, and {model.name} does not "
        f"divide (tp_size {ranks}): {told}",
        fix=f"leave these as they are: engine.fp8_skip=[{modules}], or set engine.fp8=false",
    )


def _fused_with(module: str) -> tuple[str, ...]:
    """The parts that SGLang holds as one with ``module``, itself among them."""
    return next((parts for parts in _FUSED if module in parts), (module,))


def _in(each: _Side, skip: Collection[str]) -> bool:
    return any(name.rpartition(".")[2] == each.module for name in skip)


def _sides(text: Mapping[str, Any], ranks: int) -> Iterator[_Side]:
    try:
        hidden, heads = text["hidden_size"], text["num_attention_heads"]
        groups = text.get("num_key_value_heads") or heads
        size = text.get("head_dim") or hidden // heads
        inner = text.get("moe_intermediate_size") or text["intermediate_size"]
    except KeyError:
        return
    for module, count in (("q_proj", heads), ("k_proj", groups), ("v_proj", groups)):
        mine = max(1, count // ranks)
        yield _Side(module, "rows", f"{mine} heads x {size}", mine * size)
        yield _Side(module, "columns", "hidden_size", hidden)
    mine = heads // ranks
    yield _Side("o_proj", "columns", f"{mine} heads x {size}", mine * size)
    for module in ("gate_proj", "up_proj"):
        yield _Side(module, "rows", f"{inner} / {ranks}", inner // ranks)
        yield _Side(module, "columns", "hidden_size", hidden)
    yield _Side("down_proj", "columns", f"{inner} / {ranks}", inner // ranks)
