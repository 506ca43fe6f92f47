"""Each check of ModelSuite catches a model source that breaks its promise."""

import itertools
import threading

import pytest

from axisrl.testing import ModelCase, ModelSuite
from axisrl.testing import model as checks

CASE = ModelCase(use="toy/model")
FILES = {
    "config.json": '{"vocab_size": 4}',
    "tokenizer.json": "{}",
    "model.safetensors": "weights",
}


class Good:
    files = FILES

    def __init__(self, context):
        self.context = context

    def fetch(self, cache):
        folder = self.folder(cache)
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in self.files.items():
            (folder / name).write_text(text)
        return folder

    def folder(self, cache):
        return cache / "toy"


class Elsewhere(Good):
    def folder(self, cache):
        return self.context.run_dir / "not-the-cache"


class NoWeights(Good):
    files = {k: v for k, v in FILES.items() if k != "model.safetensors"}  # noqa: RUF012


class NoTokenizer(Good):
    files = {k: v for k, v in FILES.items() if k != "tokenizer.json"}  # noqa: RUF012


class AFolderEachTime(Good):
    count = itertools.count()

    def folder(self, cache):
        return cache / f"toy-{next(self.count)}"


class OtherWeightsEachTime(Good):
    count = itertools.count()

    def fetch(self, cache):
        folder = super().fetch(cache)
        (folder / "model.safetensors").write_text(f"weights {next(self.count)}")
        return folder


class OverwritesTheOther(Good):
    """Two at once add to one file."""

    together = threading.Barrier(2)

    def fetch(self, cache):
        folder = self.folder(cache)
        if folder.exists() or cache.name != "cache":
            return super().fetch(cache)
        self.together.wait(5)
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "model.safetensors").open("a") as file:
            file.write(FILES["model.safetensors"])
        (folder / "config.json").write_text(FILES["config.json"])
        (folder / "tokenizer.json").write_text(FILES["tokenizer.json"])
        return folder


BROKEN = [
    (checks.fetch_gives_a_model_folder, Elsewhere, "is not under"),
    (checks.fetch_gives_a_model_folder, NoWeights, "no safetensors"),
    (checks.fetch_gives_a_model_folder, NoTokenizer, "no tokenizer"),
    (checks.fetching_again_changes_nothing, AFolderEachTime, "second fetch gave"),
    (checks.fetching_again_changes_nothing, OtherWeightsEachTime, "changed the files"),
    (checks.two_may_fetch_at_once, AFolderEachTime, "two fetches at once gave"),
    (checks.two_may_fetch_at_once, OverwritesTheOther, "a damaged model"),
]


def test_a_good_model_source_passes_every_check(trial):
    trial.passes(ModelSuite, CASE, Good)


@pytest.mark.parametrize(("check", "make", "told"), BROKEN)
def test_a_broken_model_source_is_caught(trial, check, make, told):
    trial.fails(check, CASE, make, told)


def test_every_check_catches_something():
    assert {check for check, _, _ in BROKEN} == set(ModelSuite.checks)
