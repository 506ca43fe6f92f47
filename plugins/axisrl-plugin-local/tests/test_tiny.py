"""Tests of axisrl_local.tiny."""

import string

import pytest
import torch

from axisrl.config.base import NoConfig
from axisrl.types import BuildContext, ModelSpec
from axisrl_local.load import load_model
from axisrl_local.tiny import TinyModel


def fetch(cache):
    return TinyModel(NoConfig(), BuildContext(run_dir=cache)).fetch(cache)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return fetch(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)


def test_two_caches_hold_byte_identical_folders(folder, tmp_path):
    torch.manual_seed(1)
    other = fetch(tmp_path)
    names = sorted(path.name for path in folder.iterdir())
    assert names == sorted(path.name for path in other.iterdir())
    assert [
        name for name in names if (folder / name).read_bytes() != (other / name).read_bytes()
    ] == []


def test_making_it_leaves_the_global_generator_alone(tmp_path):
    torch.manual_seed(1)
    before = torch.get_rng_state()
    fetch(tmp_path)
    assert torch.equal(before, torch.get_rng_state())


def test_it_loads_with_tied_embeddings(folder):
    model = load_model(ModelSpec(name="tiny", path=folder, device="cpu"))
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert model.config.vocab_size == 100


def test_every_printable_character_is_one_token_and_comes_back(tokenizer):
    text = "\n ~" + string.ascii_letters + string.digits + string.punctuation + "  two  spaces "
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text


def test_the_end_of_turn_is_the_eos_of_tokenizer_and_model(folder, tokenizer):
    model = load_model(ModelSpec(name="tiny", path=folder, device="cpu"))
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id


def test_the_chat_template_ends_turns_with_one_special_token(tokenizer):
    chat = [{"role": "user", "content": "1+1"}, {"role": "assistant", "content": "2"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text == (
        "<|im_start|>user\n1+1<|im_end|>\n<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert tokenizer.encode(text).count(tokenizer.eos_token_id) == 2
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_a_character_outside_ascii_is_the_unknown_token(tokenizer):
    assert tokenizer.encode("é", add_special_tokens=False) == [tokenizer.unk_token_id]
