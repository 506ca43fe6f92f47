"""The plugins of the how-to pages are built from the pages themselves and pass their own checks."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from axisrl.runfolder import RunFolder, list_runs

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"^```\w+\n# (\S+\.\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)


def written(page: str, folder: Path) -> Path:
    """The files of a page: each is a fenced block whose first line names it."""
    for name, text in BLOCK.findall((ROOT / "docs/how-to" / page).read_text()):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (package,) = (folder / "src").iterdir()
    (package / "__init__.py").touch()
    (package / "py.typed").touch()
    return folder


def installed(source: Path, site: Path) -> Path:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    call([*pip, "--no-build-isolation", "--target", str(site), str(source)])
    return site


def call(command: list[str], **variables: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, env=os.environ | variables, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def axisrl(site: Path, *words: str) -> str:
    output = {"AXISRL_OUTPUT_DIR": str(site.parent / "outputs"), "OMP_NUM_THREADS": "1"}
    path = os.pathsep.join(filter(None, (str(site), os.environ.get("PYTHONPATH"))))
    return call([sys.executable, "-m", "axisrl", *words], PYTHONPATH=path, **output)


@pytest.fixture(scope="module")
def reverse(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reverse")
    return installed(written("write-a-plugin.md", folder / "source"), folder / "site")


@pytest.fixture(scope="module")
def reinforce(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("reinforce")
    return installed(written("write-a-loss.md", folder / "source"), folder / "site")


def test_the_plugin_of_the_page_passes_its_conformance_checks(reverse):
    assert "failed" not in axisrl(reverse, "plugins", "check", "reverse").replace("0 failed", "")


def test_the_recipe_of_the_page_trains(reverse):
    axisrl(reverse, "run", "reverse/grpo-cpu", "--plain", "train.updates=3")
    (run,) = list_runs(reverse.parent / "outputs")
    assert (run.state, len(run.metrics)) == ("completed", 3)
    assert RunFolder(run.path).rollouts("step", 1)


def test_the_loss_of_the_page_passes_its_conformance_checks(reinforce):
    axisrl(reinforce, "plugins", "check", "reinforce")


def test_the_loss_of_the_page_trains_in_another_recipe(reinforce):
    words = ("gsm8k/grpo-cpu", "--smoke", "--plain", "train.updates=2", "loss=reinforce/weighted")
    axisrl(reinforce, "run", *words)
    (run,) = list_runs(reinforce.parent / "outputs")
    assert run.state == "completed"


@pytest.fixture(scope="module")
def recall(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("recall")
    return installed(written("write-a-service.md", folder / "source"), folder / "site")


def test_the_service_of_the_page_passes_its_conformance_checks(recall):
    axisrl(recall, "plugins", "check", "recall")


@pytest.mark.parametrize("placement", ["inline", "ray"])
def test_the_environment_of_the_page_calls_the_service_in_a_run(recall, placement):
    if placement == "ray":
        pytest.importorskip("ray")
    name = f"on-{placement}"
    words = ("recall/grpo-cpu", "--plain", "--name", name, "train.updates=1")
    axisrl(recall, "run", *words, f"placement={placement}")
    (run,) = [run for run in list_runs(recall.parent / "outputs") if run.path.name == name]
    assert run.state == "completed"
    rollouts = RunFolder(run.path).rollouts("step", 1)
    assert {row["summary"]["turns"] for row in rollouts} == {2}
