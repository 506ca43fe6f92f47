from __future__ import annotations

import pytest

from axisrl.config.load import LoadedConfig, RunRequest, load_run
from axisrl.plugins.manager import PluginManager


@pytest.fixture
def load(toy):
    """``load(recipe, *overrides, **request)`` loads a recipe of the toy plugin or a file."""

    def load(recipe: object = "toy/base", *overrides: str, **request: object) -> LoadedConfig:
        asked = RunRequest(recipe=str(recipe), overrides=overrides, **request)
        return load_run(asked, PluginManager.discover())

    return load
