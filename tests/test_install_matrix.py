"""Every distribution builds, holds its data, and each plugin works alone beside the core.

The wheels go into virtual environments that share every third-party package of this one but none
of its axisrl packages, so nothing passes because the checkout happens to be there.
"""

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PLUGINS = sorted(ROOT.glob("plugins/axisrl-plugin-*"))
PACKAGES = [ROOT / "axisrl-core", *PLUGINS]
NAMES = [path.name.removeprefix("axisrl-plugin-") for path in PLUGINS]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory) -> dict[str, Path]:
    """Distribution name -> wheel, built without isolation and without a network."""
    folder, built = tmp_path_factory.mktemp("wheels"), {}
    for package in PACKAGES:
        out = folder / package.name
        shell([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", out], cwd=package)
        (built[package.name],) = out.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environment(tmp_path_factory, wheels):
    """Makes an environment with the named wheels; returns its ``bin`` folder."""

    def make(*names: str) -> Path:
        root = tmp_path_factory.mktemp("env")
        shell([sys.executable, "-m", "venv", "--without-pip", root])
        site = next(root.glob("lib/python*/site-packages"))
        for entry in Path(sysconfig.get_path("purelib")).iterdir():
            if "axisrl" not in entry.name and entry.suffix != ".pth":
                (site / entry.name).symlink_to(entry)
        pip = [sys.executable, "-m", "pip", "--python", root / "bin/python", "install", "--quiet"]
        shell([*pip, "--no-deps", "--no-index", *(wheels[name] for name in names)])
        return root / "bin"

    return make


def shell(command: list[object], **options: object) -> str:
    clean = {key: value for key, value in os.environ.items() if not key.startswith("AXISRL_")}
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, env=clean, **options
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def contents(wheel: Path) -> set[str]:
    return set(zipfile.ZipFile(wheel).namelist())


def metadata(wheel: Path, file: str) -> str:
    archive = zipfile.ZipFile(wheel)
    (name,) = [name for name in archive.namelist() if name.endswith(f".dist-info/{file}")]
    return archive.read(name).decode()


def test_every_file_of_a_package_is_in_its_wheel(wheels):
    for package in PACKAGES:
        source = package / "src"
        files = {
            path.relative_to(source).as_posix()
            for path in source.rglob("*")
            if path.is_file() and path.suffix != ".pyc" and ".egg-info" not in str(path)
        }
        assert files - contents(wheels[package.name]) == set(), package.name


def test_every_wheel_says_it_is_typed(wheels):
    for name, wheel in wheels.items():
        assert any(file.endswith("/py.typed") for file in contents(wheel)), name


def test_no_wheel_holds_tests_or_another_top_level_package(wheels):
    for name, wheel in wheels.items():
        tops = {file.partition("/")[0] for file in contents(wheel)}
        packages = {top for top in tops if not top.endswith(".dist-info")}
        expected = (
            "axisrl" if name == "axisrl-core" else name.replace("-plugin", "").replace("-", "_")
        )
        assert packages == {expected}, name


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_requires_one_minor_version_of_the_core(wheels, name):
    fields = Parser().parsestr(metadata(wheels[f"axisrl-plugin-{name}"], "METADATA"))
    required = fields.get_all("Requires-Dist")
    (core,) = [one for one in required if one.startswith("axisrl-core") and "extra" not in one]
    assert ">=0.1" in core
    assert "<0.2" in core


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_has_one_entry_point_named_like_its_distribution(wheels, name):
    package = f"axisrl_{name.replace('-', '_')}"
    points = metadata(wheels[f"axisrl-plugin-{name}"], "entry_points.txt")
    assert points.split("[axisrl]")[1].split() == [name, "=", f"{package}.plugin"]


def test_all_wheels_have_one_version(wheels):
    versions = {Parser().parsestr(metadata(w, "METADATA"))["Version"] for w in wheels.values()}
    assert len(versions) == 1


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_installed_alone_beside_the_core_is_found_and_loads(environment, name):
    bin_ = environment("axisrl-core", f"axisrl-plugin-{name}")
    (found,) = json.loads(shell([bin_ / "axisrl", "plugins", "list", "--json"], cwd=bin_))
    assert (found["name"], found["state"]) == (name, "found")
    assert f"{name}/" in shell([bin_ / "axisrl", "plugins", "show", name], cwd=bin_)


def test_the_core_alone_has_its_commands_and_no_plugin(environment):
    bin_ = environment("axisrl-core")
    assert json.loads(shell([bin_ / "axisrl", "plugins", "list", "--json"], cwd=bin_)) == []
    for command in ("run", "runs", "view", "config", "models"):
        assert command in shell([bin_ / "axisrl", command, "--help"], cwd=bin_)
