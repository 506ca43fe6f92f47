from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.models import model_at_hand, named_models, resolve_model
from axisrl.plugins.manager import PluginManager

MODELS = """
from axisrl.plugins import ModelComponent, hookimpl

@hookimpl
def axisrl_models():
    return [ModelComponent(name="nano", target="{module}.parts:Nano")]
"""


def make_model(folder: Path, *weights: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text("{}")
    for name in weights:
        (folder / name).write_bytes(b"")
    return folder


class Hub:
    """``answers`` maps local_files_only to a folder or an error; ``asked`` is what was asked."""

    def __init__(self) -> None:
        self.answers: dict[bool, Path | Exception] = {}
        self.asked: list[bool] = []

    def snapshot_download(self, name: str, *, allow_patterns, local_files_only: bool) -> str:
        self.asked.append(local_files_only)
        answer = self.answers.get(local_files_only, OSError("no such repository"))
        if isinstance(answer, Exception):
            raise answer
        return str(answer)


@pytest.fixture
def hub(monkeypatch):
    """Stands for the hub's client."""
    huggingface_hub = pytest.importorskip("huggingface_hub")

    hub = Hub()
    monkeypatch.setattr(huggingface_hub, "snapshot_download", hub.snapshot_download)
    return hub


def test_a_folder_with_a_config_is_the_model(tmp_path):
    folder = make_model(tmp_path / "m")
    assert resolve_model(str(folder), PluginManager.discover(), tmp_path / "cache") == folder


def test_a_path_without_a_model_says_what_is_missing(tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"no config\.json"):
        resolve_model(str(tmp_path), PluginManager.discover(), tmp_path)


def make_run(folder: Path, *steps: int, model: bool = True) -> Path:
    for step in steps:
        checkpoint = folder / "checkpoints" / f"step-{step:06d}"
        checkpoint.mkdir(parents=True)
        if model:
            make_model(checkpoint / "trainer" / "model")
        for name in ("COMPLETE", "state.json"):
            (checkpoint / name).write_text("{}")
    folder.mkdir(exist_ok=True)
    (folder / "manifest.json").write_text("{}")
    return folder


def test_a_runs_folder_is_its_newest_complete_checkpoint(tmp_path):
    run = make_run(tmp_path / "run", 2, 10, 12)
    (run / "checkpoints" / "step-000012" / "COMPLETE").unlink()
    found = resolve_model(str(run), PluginManager.discover(), tmp_path)
    assert found == run / "checkpoints" / "step-000010" / "trainer" / "model"


def test_a_checkpoints_folder_is_the_model_in_it(tmp_path):
    checkpoint = make_run(tmp_path / "run", 2, 10) / "checkpoints" / "step-000002"
    found = resolve_model(str(checkpoint), PluginManager.discover(), tmp_path)
    assert found == checkpoint / "trainer" / "model"


def test_a_run_that_saved_no_model_says_so(tmp_path):
    with pytest.raises(EnvironmentProblem, match="run has no complete checkpoint"):
        resolve_model(str(make_run(tmp_path / "run")), PluginManager.discover(), tmp_path)
    played = make_run(tmp_path / "played", 3, model=False)
    with pytest.raises(EnvironmentProblem, match=r"step-000003 holds no model in trainer/model"):
        resolve_model(str(played), PluginManager.discover(), tmp_path)


@pytest.mark.parametrize("name", ["nano", "toy/nano"])
def test_a_named_model_of_an_inactive_plugin_is_fetched_into_the_cache(toy, tmp_path, name):
    found = resolve_model(name, PluginManager.discover(), tmp_path / "cache")
    assert found == tmp_path / "cache/nano"
    assert (found / "config.json").is_file()


def test_an_active_plugins_model_goes_before_those_of_others(toy, site, tmp_path):
    site.add("rival", MODELS)
    manager = PluginManager.discover()
    manager.activate(["toy"])
    assert resolve_model("nano", manager, tmp_path).name == "nano"


def test_a_name_of_two_inactive_plugins_is_ambiguous(toy, site, tmp_path):
    site.add("rival", MODELS)
    with pytest.raises(ConfigError, match="ambiguous: rival/nano, toy/nano"):
        resolve_model("nano", PluginManager.discover(), tmp_path)


def test_a_broken_plugin_does_not_hide_the_models_of_others(toy, site):
    """Pitfall 27."""
    site.add("broken", "raise RuntimeError('no')")
    assert "toy/nano" in [model.id for model in named_models(PluginManager.discover())]


def test_the_local_cache_goes_before_the_network(hub, tmp_path):
    hub.answers = {True: make_model(tmp_path / "snap", "model.safetensors")}
    found = resolve_model("org/some", PluginManager.discover(), tmp_path)
    assert found == tmp_path / "snap"
    assert hub.asked == [True]


def test_a_half_filled_cache_is_completed_from_the_hub(hub, tmp_path):
    partial = make_model(tmp_path / "partial", "model-1.safetensors")
    index = {"weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}
    (partial / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = make_model(tmp_path / "whole", "model.safetensors")
    hub.answers = {True: partial, False: whole}
    assert resolve_model("org/some", PluginManager.discover(), tmp_path) == whole


def test_a_missing_model_names_itself_the_options_and_the_command(hub, toy, tmp_path):
    with pytest.raises(EnvironmentProblem) as caught:
        resolve_model("nanno", PluginManager.discover(), tmp_path)
    assert "no model 'nanno'; did you mean nano?" in caught.value.message
    assert "no such repository" in caught.value.message
    assert "toy/nano" in caught.value.fix
    assert "axisrl models fetch nanno" in caught.value.fix


def test_a_repository_without_safetensors_is_refused(hub, tmp_path):
    hub.answers = {False: make_model(tmp_path / "bin", "pytorch_model.bin")}
    with pytest.raises(EnvironmentProblem, match=r"no config\.json with safetensors"):
        resolve_model("org/some", PluginManager.discover(), tmp_path)


def test_without_the_hubs_client_the_message_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(EnvironmentProblem, match="huggingface_hub is not installed"):
        resolve_model("org/some", PluginManager.discover(), tmp_path)


def test_a_model_at_hand_is_a_folder_or_whole_in_the_hubs_cache(tmp_path, hub):
    folder = make_model(tmp_path / "m", "model.safetensors")
    assert model_at_hand(str(folder)) == folder
    assert model_at_hand("org/other") is None
    hub.answers[True] = folder
    assert model_at_hand("org/model") == folder
    assert hub.asked == [True, True]
