"""What a :class:`axisrl.protocols.ModelSource` promises. It does not load the model."""

from __future__ import annotations

import hashlib
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from axisrl.testing.cases import ModelCase
from axisrl.testing.harness import Subject, Suite, require

ModelSubject = Subject[ModelCase]


def fetch_gives_a_model_folder(subject: ModelSubject) -> None:
    """Under the cache, with config.json, a tokenizer and safetensors."""
    cache = subject.work_dir / "cache"
    folder: Path = subject.build().fetch(cache)
    require(folder.resolve().is_relative_to(cache.resolve()), f"{folder} is not under {cache}")
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    require(isinstance(config, dict) and config, "config.json holds no object")
    require(list(folder.glob("*.safetensors")), f"{folder} holds no safetensors")
    require(list(folder.glob("tokenizer*")), f"{folder} holds no tokenizer files")


def fetching_again_changes_nothing(subject: ModelSubject) -> None:
    """Same folder, same bytes."""
    source, cache = subject.build(), subject.work_dir / "cache"
    first = source.fetch(cache)
    before = _digest(first)
    second = subject.build().fetch(cache)
    require(second == first, f"the second fetch gave {second} instead of {first}")
    require(_digest(second) == before, "the second fetch changed the files")


def two_may_fetch_at_once(subject: ModelSubject) -> None:
    """Both get the whole model."""
    cache = subject.work_dir / "cache"
    with ThreadPoolExecutor(2) as pool:
        folders = list(pool.map(lambda _: subject.build().fetch(cache), range(2)))
    require(folders[0] == folders[1], f"two fetches at once gave {folders[0]} and {folders[1]}")
    alone = subject.build().fetch(subject.work_dir / "other-cache")
    require(_digest(folders[0]) == _digest(alone), "two fetches at once gave a damaged model")


class ModelSuite(Suite):
    """Tries a model source with ``ModelCase``s."""

    kind = "model"
    checks = (fetch_gives_a_model_folder, fetching_again_changes_nothing, two_may_fetch_at_once)


def _digest(folder: Path) -> dict[str, str]:
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.iterdir())
        if path.suffix in (".safetensors", ".json")
    }
