"""Fixtures of the whole suite: plugins installed as real distributions in a folder of the test, and
a recorded run."""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import dedent

import pytest

GOOD = """
from axisrl.plugins import EnvComponent, hookimpl

@hookimpl
def axisrl_envs():
    return [EnvComponent(name="world", target="{module}.env:World", summary="A test world")]
"""


class Site:
    """A folder on ``sys.path`` that distributions are written into as an installer would."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(
        self,
        name: str,
        source: str = GOOD,
        *,
        distribution: str = "",
        version: str = "1.0",
        requires: Sequence[str] = (),
        files: Mapping[str, str] | None = None,
    ) -> str:
        """Install ``axisrl-plugin-<name>``; ``{module}`` in the source is its import package."""
        distribution = distribution or f"axisrl-plugin-{name}"
        module = f"axisrl_{distribution.removeprefix('axisrl-plugin-').replace('-', '_')}"
        package = self.path / module
        package.mkdir()
        for file, text in {"__init__.py": "", "plugin.py": source, **(files or {})}.items():
            (package / file).parent.mkdir(exist_ok=True)
            (package / file).write_text(dedent(text).replace("{module}", module))
        metadata = [f"Name: {distribution}", f"Version: {version}"]
        metadata += [f"Requires-Dist: {line}" for line in requires]
        self.add_raw(distribution, version, f"[axisrl]\n{name} = {module}.plugin\n", metadata)
        return module

    def add_raw(
        self, distribution: str, version: str, entry_points: str, metadata: Sequence[str] = ()
    ) -> Path:
        """Write the metadata of a distribution and nothing else."""
        info = self.path / f"{distribution.replace('-', '_')}-{version}.dist-info"
        info.mkdir()
        lines = ["Metadata-Version: 2.1", *(metadata or [f"Name: {distribution}"]), ""]
        (info / "METADATA").write_text("\n".join(lines))
        (info / "entry_points.txt").write_text(entry_points)
        importlib.invalidate_caches()
        return info


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    path = filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path))
    before = set(sys.modules)
    yield Site(folder)
    for name in set(sys.modules) - before:
        origin = getattr(sys.modules[name], "__file__", None) or ""
        if origin.startswith(str(tmp_path)) or name.startswith("axisrl_local_"):
            del sys.modules[name]


HOSTILE = "<script>alert(1)</script> \x1b[31mred\u202e #### 7"


@pytest.fixture
def output_root(tmp_path, monkeypatch) -> Path:
    root = tmp_path / "outputs"
    root.mkdir()
    monkeypatch.setenv("AXISRL_OUTPUT_DIR", str(root))
    return root


@pytest.fixture
def run_dir(output_root) -> Path:
    """A finished run of three steps, evaluated before and after; one answer tries to break out."""
    return record(output_root / "demo")


def record(folder: Path, **manifest: object) -> Path:
    (folder / "rollouts").mkdir(parents=True)
    facts = {
        "name": folder.name,
        "recipe": "gsm8k/grpo-cpu",
        "created": 100.0,
        "state": "completed",
    }
    facts["command"] = ["axisrl", "run", "gsm8k/grpo-cpu"]
    write_json(folder / "manifest.json", facts | manifest)
    write_lines(
        folder / "metrics.jsonl",
        [
            {"step": 0, "time": 100.0, "eval/accuracy": 0.0, "eval/accuracy_low": 0.0},
            {"step": 1, "time": 110.0, "reward/mean": 0.125, "loss/total": float("nan")},
            {"step": 2, "time": 120.0, "reward/mean": 0.25},
            {"step": 3, "time": 130.0, "reward/mean": 0.75, "eval/accuracy": 0.5},
        ],
    )
    write_lines(folder / "rollouts/eval-000000.jsonl", [row(0, "a", HOSTILE), row(0, "b", "no")])
    write_lines(
        folder / "rollouts/eval-000003.jsonl",
        [row(3, "a", "#### 7", passed=True), row(3, "b", "still no"), row(3, "a", "sampled")],
    )
    write_lines(folder / "rollouts/step-000001.jsonl", [row(1, "c", "x", member=m) for m in (0, 1)])
    return folder


def row(step: int, task: str, answer: str, *, member: int = 0, passed: bool = False) -> dict:
    summary = {"id": f"{step}-{task}-{member}", "task_id": task, "group": 0, "member": member}
    summary |= {"outcome": "completed", "reward": float(passed), "passed": passed, "parts": {}}
    messages = [{"role": "user", "content": f"question {task}"}]
    messages.append({"role": "assistant", "content": answer})
    return {"step": step, "summary": summary, "messages": messages, "verdicts": {}}


def write_json(path: Path, value: object) -> None:
    path.write_text(json.dumps(value))


def write_lines(path: Path, rows: list) -> None:
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


TOY = """
from axisrl.plugins import (
    AdvantageComponent, CommandComponent, DatasetComponent, EngineComponent, EnvComponent,
    LossComponent, ModelComponent, RecipeComponent, ServiceComponent, TrainerComponent,
    VerifierComponent, hookimpl,
)

@hookimpl
def axisrl_envs():
    return [
        EnvComponent(name="world", target="{module}.parts:World", config="{module}.config:World"),
        EnvComponent(name="void", target="{module}.parts:World"),
    ]

@hookimpl
def axisrl_datasets():
    return [DatasetComponent(name="tasks", target="{module}.parts:Tasks")]

@hookimpl
def axisrl_verifiers():
    return [VerifierComponent(name="exact", target="{module}.parts:Exact", version=2)]

@hookimpl
def axisrl_advantages():
    return [
        AdvantageComponent(name="group", target="{module}.parts:Group"),
        AdvantageComponent(name="alone", target="{module}.parts:Alone", group_relative=False),
    ]

@hookimpl
def axisrl_losses():
    return [LossComponent(name="clip", target="{module}.parts:Clip", config="{module}.config:Clip")]

@hookimpl
def axisrl_rollout_engines():
    return [
        EngineComponent(name="engine", target="{module}.parts:Engine", transports=("disk",),
                        config="{module}.config:Engine"),
        EngineComponent(name="far", target="{module}.parts:Engine", transports=("nccl",)),
    ]

@hookimpl
def axisrl_trainer_backends():
    return [TrainerComponent(name="trainer", target="{module}.parts:Trainer", transports=("disk",))]

@hookimpl
def axisrl_models():
    return [ModelComponent(name="nano", target="{module}.parts:Nano", summary="A test model")]

@hookimpl
def axisrl_services():
    return [
        ServiceComponent(name="index", target="{module}.parts:Index",
                         config="{module}.config:World"),
    ]

@hookimpl
def axisrl_commands():
    return [CommandComponent(name="hello", target="{module}.commands:hello", help="Greet.")]

@hookimpl
def axisrl_recipes():
    return [
        RecipeComponent(name="base", target="{module}:configs/base.yaml",
                        smoke="{module}:configs/smoke.yaml"),
        RecipeComponent(name="small", target="{module}:configs/small.yaml"),
        RecipeComponent(name="wide", target="{module}:presets/wide.yaml", preset=True),
        RecipeComponent(name="rare", target="{module}:presets/rare.yaml", preset=True),
    ]

@hookimpl
def axisrl_config_resolved(config):
    from axisrl.plugins import ConfigProblem
    if config.seed == 13:
        yield ConfigProblem(path="seed", message="13 is unlucky", fix="seed=14")

@hookimpl
def axisrl_models_found(config, models):
    from axisrl.plugins import ConfigProblem
    for path, folder in models.items():
        if (folder / "unlucky").exists():
            yield ConfigProblem(path=path, message=f"{folder} is unlucky", fix="another model")
"""

TOY_FILES = {
    "config.py": '''
        from __future__ import annotations
        from dataclasses import dataclass
        from typing import Literal
        from axisrl.config.base import Config

        @dataclass(frozen=True, kw_only=True, slots=True)
        class World(Config):
            """A world."""

            size: int = 3
            """Cells a side."""
            shape: Literal["flat", "round"] = "flat"

            def __post_init__(self) -> None:
                if self.size < 1:
                    raise ValueError(f"size {self.size} is below 1")

        @dataclass(frozen=True, kw_only=True, slots=True)
        class Clip(Config):
            clip: float = 0.2

        @dataclass(frozen=True, kw_only=True, slots=True)
        class Engine(Config):
            max_batch: int = 8
        ''',
    "parts.py": """
        class Nano:
            def __init__(self, config, context):
                self.context = context

            def fetch(self, cache):
                folder = cache / "nano"
                folder.mkdir(parents=True, exist_ok=True)
                (folder / "config.json").write_text("{}")
                return folder
        """,
    "commands.py": """
        import click

        @click.command()
        def hello():
            click.echo("hello from toy")
        """,
    "configs/base.yaml": """
        model: nano
        dataset: toy/tasks
        env: {use: toy/world, size: 5}
        verifiers: {exact: toy/exact}
        advantage: toy/group
        loss: {use: toy/clip, clip: 0.1}
        engine: toy/engine
        trainer: toy/trainer
        rollout: {group_size: 4}
        train: {updates: 10, batch_size: 8}
        """,
    "configs/small.yaml": """
        extends: toy/base
        train: {batch_size: 4}
        """,
    "configs/smoke.yaml": """
        train: {updates: 2}
        """,
    "presets/wide.yaml": """
        loss: {use: toy/clip, clip: 0.4}
        rollout: {group_size: 8}
        """,
    "presets/rare.yaml": """
        loss: {clip: 0.3}
        checkpoint: {every: 9}
        """,
}


@pytest.fixture
def toy(site: Site) -> Site:
    """A site with the plugin ``toy``: one component of every kind that a run needs, two recipes,
    two presets."""
    site.add("toy", TOY, files=TOY_FILES)
    return site


SPHERE = """
from axisrl.plugins import EnvComponent, hookimpl

@hookimpl
def axisrl_envs():
    config = "{module}.config:Sphere"
    return [EnvComponent(name="sphere", target="{module}.config:Sphere", config=config)]
"""
SPHERE_CONFIG = """
from __future__ import annotations
from dataclasses import dataclass
from axisrl.config.base import Config

@dataclass(frozen=True, kw_only=True, slots=True)
class Sphere(Config):
    size: int = 3
"""


@pytest.fixture
def sphere(toy: Site) -> Site:
    """``toy``, and the plugin ``round`` with an env that has a size, too."""
    toy.add("round", SPHERE, files={"config.py": SPHERE_CONFIG})
    return toy


@pytest.fixture(scope="session")
def local_ray(tmp_path_factory):
    """A Ray of two CPUs and two GPUs (nobody has to own them) for the whole session, with little
    memory; its value is where it spills."""
    ray = pytest.importorskip("ray", reason="the extra axisrl-core[ray] is not installed")
    spill = tmp_path_factory.mktemp("spill")
    ray.init(
        address="local",  # not one that another test process has just started
        num_cpus=2,
        num_gpus=2,
        include_dashboard=False,
        object_store_memory=100 << 20,
        object_spilling_directory=str(spill),
        configure_logging=False,
        log_to_driver=False,
    )
    yield spill
    ray.shutdown()
