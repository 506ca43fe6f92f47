import json
import shutil

import pytest

from axisrl.errors import ConfigError
from axisrl.runtime.vocabulary import check_same_tokens
from axisrl.types import ModelSpec


def spec(name, path):
    return ModelSpec(name=name, path=path)


@pytest.fixture
def other(model_folder, tmp_path):
    """A model whose vocabulary was changed by a function; it has no chat template."""

    def make(change):
        folder = tmp_path / "other"
        shutil.copytree(model_folder, folder)
        (folder / "chat_template.jinja").unlink()
        file = folder / "tokenizer.json"
        tokenizer = json.loads(file.read_text())
        change(tokenizer["model"]["vocab"])
        file.write_text(json.dumps(tokenizer))
        return spec("big", folder)

    return make


def test_tokens_on_top_of_the_policy_s_do_no_harm(other, model_folder):
    model = other(lambda vocabulary: vocabulary.update(extra=len(vocabulary)))
    check_same_tokens("teacher.model", model, spec("small", model_folder))


def test_a_token_with_another_id_is_named_with_both(other, model_folder):
    def swap(vocabulary):
        vocabulary["A"], vocabulary["B"] = vocabulary["B"], vocabulary["A"]

    with pytest.raises(ConfigError) as caught:
        check_same_tokens("teacher.model", other(swap), spec("small", model_folder))
    assert caught.value.message == (
        "teacher.model: big has another tokenizer than small: 'A', which is 68 to the policy, has "
        "the id 69 (2 of 259 tokens differ)"
    )


def test_a_token_that_is_missing_is_named(other, model_folder):
    model = other(lambda vocabulary: vocabulary.pop("A"))
    with pytest.raises(ConfigError, match="'A', which is 68 to the policy, is not there"):
        check_same_tokens("value.model", model, spec("small", model_folder))
