"""Model folders for ``roofline.py``: a named one, one on disk, or random weights of a known size.

Random weights need no network and no download; their speed is that of trained ones.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from axisrl.config.base import NoConfig
from axisrl.types import BuildContext
from axisrl_local.smollm2 import SmolLM2
from axisrl_local.tiny import TinyModel
from setting import endless

SOURCES: dict[str, type[TinyModel] | type[SmolLM2]] = {"tiny": TinyModel, "smollm2-135m": SmolLM2}
RANDOM: dict[str, dict[str, int]] = {
    "random-135m": {
        "vocab_size": 49152,
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
    },
    "random-1.5b": {
        "vocab_size": 151936,
        "hidden_size": 1536,
        "intermediate_size": 8960,
        "num_hidden_layers": 28,
        "num_attention_heads": 12,
        "num_key_value_heads": 2,
    },
}
"""The sizes of SmolLM2-135M and Qwen2.5-1.5B, as Llama models with tied embeddings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSize:
    """Parameters that are multiplied with."""

    body: int
    """The layers' matrices."""
    head: int
    """The output matrix, also where it is the embedding's."""


def size_of(folder: Path) -> ModelSize:
    """Counted from the model's shapes; no weights are read."""
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(folder)
    with torch.device("meta"):
        model: Any = AutoModelForCausalLM.from_config(config)
    outside = {id(model.get_input_embeddings().weight), id(model.get_output_embeddings().weight)}
    matrices = [p for p in model.parameters() if p.ndim == 2 and id(p) not in outside]
    head = model.get_output_embeddings().weight.numel()
    return ModelSize(body=sum(p.numel() for p in matrices), head=head)


def folder_of(model: str, cache: Path, work: Path) -> Path:
    """A folder whose end token the model does not write; ``work`` takes what is made for it."""
    context = BuildContext(run_dir=work)
    if model in SOURCES:
        source = SOURCES[model](NoConfig(), context).fetch(cache)
    elif model in RANDOM:
        tokenizer = TinyModel(NoConfig(), context).fetch(cache)
        source = make_random(RANDOM[model], tokenizer, work / model)
    else:
        source = Path(model).expanduser()
    return endless(source, work / "endless")


def make_random(sizes: dict[str, int], tokenizer: Path, folder: Path) -> Path:
    """A bfloat16 Llama with weights from a seed; the tokenizer is the tiny model's."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        **sizes, tie_word_embeddings=True, max_position_embeddings=4096, dtype="bfloat16"
    )
    torch.manual_seed(0)
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(tokenizer / name, folder / name)
    return folder
