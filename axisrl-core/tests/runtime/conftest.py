"""A run on the stage: real config, plugins, actors and files; scripted engine, trainer and
tasks."""

import json
from pathlib import Path

import pytest

from axisrl.config.load import RunRequest, load_run
from axisrl.plugins.manager import PluginManager
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.driver import run
from axisrl.runtime.options import RunOptions
from axisrl.testing.fakes import CharTokenizer
from axisrl.types import ModelSpec

STAGE = Path(__file__).with_name("stage.py")
RECIPE = """
model: {name: MODEL}
dataset: {use: stage/count, size: 6}
env: {use: stage/echo, turns: 1}
verifiers: {exact: stage/exact}
rewards: {main: {use: core/sum, env_weights: {said: 0}}}
advantage: stage/centred
loss: stage/plain
engine: stage/engine
trainer: stage/trainer
loggers: [core/jsonl]
rollout: {group_size: 4, max_context: 400, sampling: {max_tokens: 20}}
train: {updates: 4, batch_size: 8, max_tokens_per_batch: 4096}
eval: {dataset: {use: stage/count, size: 3}, every: 2}
checkpoint: {every: 1}
"""
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    """A folder whose tokenizer has CharTokenizer's ids; there are no weights in it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    specials = ["<|pad|>", "<|im_start|>", "<|im_end|>"]
    letters = pre_tokenizers.ByteLevel.alphabet()
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    by_letter = {plain.pre_tokenize_str(chr(b))[0][0]: b for b in range(128)}
    rest = iter(range(128, 256))
    vocab = {special: at for at, special in enumerate(specials)}
    vocab |= {letter: 3 + by_letter.get(letter, -1) for letter in letters if letter in by_letter}
    vocab |= {letter: 3 + next(rest) for letter in sorted(letters) if letter not in by_letter}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = plain
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(special, special=True) for special in specials])
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|im_end|>")
    fast.chat_template = TEMPLATE
    folder = tmp_path_factory.mktemp("model")
    fast.save_pretrained(folder)
    (folder / "config.json").write_text("{}")
    text = "<|im_start|>user\nSay 3.<|im_end|>\n"
    assert fast(text, add_special_tokens=False)["input_ids"] == CharTokenizer().encode(text)
    return folder


@pytest.fixture
def stage(tmp_path, model_folder):
    """Runs the recipe with overrides; ``stage(...)`` returns the result, ``stage.dir`` is its
    folder."""
    return Stage(tmp_path, model_folder)


class Stage:
    def __init__(self, tmp_path, model_folder):
        self.recipe = tmp_path / "recipe.yaml"
        self.recipe.write_text(RECIPE.replace("MODEL", str(model_folder)))
        self.dir = tmp_path / "run"
        self._model = ModelSpec(name="m", path=model_folder)

    def load(self, *overrides, plugins=()):
        manager = PluginManager.discover(local=[STAGE, *plugins])
        request = RunRequest(recipe=str(self.recipe), overrides=overrides)
        return load_run(request, manager), manager

    def boot(self, *overrides, role="rollout", plugins=()):
        """What an actor of such a run is built from."""
        loaded, manager = self.load(*overrides, plugins=plugins)
        return ActorBoot(
            role=role,
            rank=0,
            manifest=manager.manifest(),
            config=loaded.config,
            run_dir=self.dir.parent,
            model=self._model,
        )

    def __call__(self, *overrides, resume=False, allow_drift=False, overwrite=False, plugins=()):
        loaded, manager = self.load(*overrides, plugins=plugins)
        options = RunOptions(
            run_dir=self.dir,
            resume=resume,
            plain=True,
            show_samples=None,
            command=("axisrl", "run"),
            allow_drift=allow_drift,
            overwrite=overwrite,
            cache_dir=self.dir.parent / "cache",
        )
        return run(loaded, manager, options)

    @property
    def metrics(self):
        return [json.loads(line) for line in (self.dir / "metrics.jsonl").read_text().splitlines()]

    def rollouts(self, name):
        text = (self.dir / "rollouts" / f"{name}.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    @property
    def manifest(self):
        return json.loads((self.dir / "manifest.json").read_text())
