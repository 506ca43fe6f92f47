"""``local/tiny``: a two-layer Llama made from a fixed seed, with a tokenizer of single characters.

For tests and smoke runs: it exists offline in a second and is byte-identical everywhere. It knows
nothing; one token is one printable ASCII character or newline, other characters become
``<|unk|>``.
"""

from __future__ import annotations

import string
from pathlib import Path
from typing import Any

from axisrl.config.base import NoConfig
from axisrl.types import BuildContext
from axisrl_local.folder import make_once

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""ChatML, without a system message of its own."""

_SPECIAL = ("<|pad|>", "<|unk|>", "<|im_start|>", "<|im_end|>")
_CHARACTERS = "\n" + "".join(
    sorted(string.digits + string.ascii_letters + string.punctuation + " ")
)
_SEED = 20_240_607
_STD = 0.1


class TinyModel:
    """The source of the tiny model. Takes no options."""

    def __init__(self, config: NoConfig, context: BuildContext) -> None:
        self._logger = context.logger

    def fetch(self, cache: Path) -> Path:
        """``cache/tiny``, made at the first call; a damaged folder is made again."""
        return make_once(cache / "tiny", _make, self._logger)


def _make(folder: Path) -> None:
    import torch
    from safetensors.torch import save_file
    from transformers import LlamaConfig, LlamaForCausalLM

    tokenizer = _tokenizer()
    end = tokenizer.convert_tokens_to_ids("<|im_end|>")
    config = LlamaConfig(
        architectures=["LlamaForCausalLM"],
        dtype="float32",
        vocab_size=len(_SPECIAL) + len(_CHARACTERS),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=end,
        pad_token_id=tokenizer.pad_token_id,
    )
    # Names and shapes only: real initial values would advance torch's global generator.
    with torch.device("meta"):
        model = LlamaForCausalLM(config)
    save_file(_weights(model), folder / "model.safetensors", metadata={"format": "pt"})
    model.config.save_pretrained(folder)
    model.generation_config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _weights(model: Any) -> dict[str, Any]:
    """Values for every parameter, drawn in the order of the names; tied ones once."""
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    weights = {}
    for name, parameter in sorted(model.named_parameters()):
        if parameter.ndim == 1:
            weights[name] = torch.ones(parameter.shape)
            continue
        std = _STD if "embed" in name else parameter.shape[1] ** -0.5
        weights[name] = torch.empty(parameter.shape).normal_(0.0, std, generator=generator)
    return weights


def _tokenizer() -> Any:
    from tokenizers import AddedToken, Tokenizer, decoders, models
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: index for index, token in enumerate((*_SPECIAL, *_CHARACTERS))}
    backend = Tokenizer(models.BPE(vocab=vocabulary, merges=[], unk_token="<|unk|>"))
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token in _SPECIAL]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token="<|pad|>",
        unk_token="<|unk|>",
        eos_token="<|im_end|>",
        extra_special_tokens=["<|im_start|>"],
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
        model_max_length=4096,
    )
