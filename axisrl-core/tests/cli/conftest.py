"""``axisrl run`` with a driver that only writes what the real one writes first."""

from __future__ import annotations

import json
import shutil

import pytest
from click.testing import CliRunner

from axisrl.cli.main import main
from axisrl.config.load import write_config
from axisrl.runtime import driver
from axisrl.runtime.driver import RunResult


class Driver:
    """Stands for the driver; ``calls`` is what it was asked to run, ``plugins`` with which."""

    def __init__(self) -> None:
        self.calls: list = []
        self.plugins: list = []
        self.checkpoints = ["step-000002"]
        self.outcome = "completed"

    def run(self, loaded, manager, options) -> RunResult:
        self.calls.append((loaded, options))
        if options.overwrite:
            shutil.rmtree(options.run_dir)
        if not options.resume or options.allow_drift:
            write_config(loaded, options.run_dir)
        plugins = manager.manifest().to_dict()
        self.plugins.append(plugins)
        manifest = {"recipe": loaded.recipe, "state": self.outcome, "plugins": plugins}
        (options.run_dir / "manifest.json").write_text(json.dumps(manifest))
        for step in self.checkpoints:
            marker = options.run_dir / "checkpoints" / step / "COMPLETE"
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()
        said, folder = ("all there is to say",), options.run_dir
        return RunResult(outcome=self.outcome, run_dir=folder, step=2, report=said)


@pytest.fixture
def fake(monkeypatch) -> Driver:
    fake = Driver()
    monkeypatch.setattr(driver, "run", fake.run)
    return fake


@pytest.fixture
def run(toy, output_root, fake):
    return lambda *arguments: CliRunner().invoke(main, ["run", *map(str, arguments)])
