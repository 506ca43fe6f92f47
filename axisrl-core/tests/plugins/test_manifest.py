from __future__ import annotations

import pickle
import platform
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from axisrl import __version__
from axisrl.errors import PluginError, PluginMismatch
from axisrl.plugins import API_VERSION
from axisrl.plugins.discovery import MAX_LOCAL_BYTES
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.manifest import ManifestEntry, PluginManifest
from axisrl.plugins.records import PluginOptions

FILE = """
from axisrl.plugins import EnvComponent, hookimpl

class World:
    def __init__(self, config, context):
        pass

@hookimpl
def axisrl_envs():
    return [EnvComponent(name="world", target=f"{__name__}:World")]
"""
WORKER = """
import sys
from pathlib import Path
from axisrl.plugins import ComponentRef
from axisrl.plugins.manager import PluginManager
from axisrl.plugins.manifest import PluginManifest
from axisrl.types import BuildContext

plugins = PluginManager.restore(PluginManifest.from_json(Path(sys.argv[1]).read_text()))
ref = ComponentRef(kind="env", use=sys.argv[2])
world = plugins.build("env", ref, BuildContext(run_dir=Path()))
print(type(world).__module__, sys.modules[type(world).__module__].__file__)
"""


def entry(name: str, **fields: str) -> ManifestEntry:
    given = {"distribution": f"axisrl-plugin-{name}", "version": "1.0", **fields}
    return ManifestEntry(name=name, value=f"axisrl_{name}.plugin", **given)


def driver(*names: str, options: PluginOptions | None = None) -> PluginManifest:
    manager = PluginManager.discover(local=names, options=options or PluginOptions())
    manager.activate_for([])
    return manager.manifest()


def test_a_manifest_holds_the_active_plugins_with_versions_but_not_core(site):
    site.add("alpha", version="1.2")
    site.add("beta")
    manifest = driver("alpha")
    assert manifest == PluginManifest(
        api=API_VERSION, core=__version__, plugins=(entry("alpha", version="1.2"),)
    )


def test_a_manifest_survives_json_and_pickle_and_is_small(site):
    for name in ("alpha", "beta", "gamma"):
        site.add(name)
    manifest = driver("alpha", "beta", "gamma")
    assert PluginManifest.from_json(manifest.to_json()) == manifest
    assert pickle.loads(pickle.dumps(manifest)) == manifest
    assert len(manifest.to_json()) < 500


NO_PLUGIN = '{"api": 1, "core": "1", "plugins": [%s]}'


@pytest.mark.parametrize("text", ["", "[]", "{}", NO_PLUGIN % "{}", NO_PLUGIN % "[]"])
def test_what_is_no_manifest_is_an_error(text):
    with pytest.raises(PluginError, match="not a plugin manifest"):
        PluginManifest.from_json(text)


def test_differences_name_plugin_and_both_versions():
    here = PluginManifest(api=1, core="0.1", plugins=(entry("a"), entry("b"), entry("same")))
    there = PluginManifest(api=2, core="0.2", plugins=(entry("a", version="2.0"), entry("same")))
    assert here.differences(there, mine="checkpoint", theirs="now") == [
        "plugin API: checkpoint 1, now 2",
        "core: checkpoint axisrl-core 0.1, now axisrl-core 0.2",
        "a: checkpoint axisrl-plugin-a 1.0, now axisrl-plugin-a 2.0",
        "b: checkpoint axisrl-plugin-b 1.0, now has none",
    ]
    assert here.differences(here, mine="x", theirs="y") == []


def test_restoring_activates_the_same_plugins_and_no_other(site):
    site.add("alpha")
    site.add("beta")
    restored = PluginManager.restore(driver("alpha"))
    states = {r.name: r.state for r in restored.records()}
    assert (states["core"], states["alpha"], states["beta"]) == ("active", "active", "found")
    assert restored.manifest() == driver("alpha")


def test_a_worker_with_another_version_names_node_plugin_and_both_versions_within_a_second(site):
    site.add("alpha", version="1.1")
    manifest = PluginManifest(api=API_VERSION, core=__version__, plugins=(entry("alpha"),))
    started = time.process_time()
    with pytest.raises(PluginMismatch) as error:
        PluginManager.restore(manifest)
    assert time.process_time() - started < 1
    assert platform.node() in error.value.message
    assert "alpha: driver axisrl-plugin-alpha 1.0, worker axisrl-plugin-alpha 1.1" in str(
        error.value
    )
    assert error.value.exit_code == 4


def test_a_worker_without_the_plugin_says_so(site):
    manifest = PluginManifest(api=API_VERSION, core=__version__, plugins=(entry("alpha"),))
    with pytest.raises(
        PluginMismatch, match=r"alpha: driver axisrl-plugin-alpha 1.0, worker has none"
    ):
        PluginManager.restore(manifest)


def test_a_worker_with_another_core_says_so():
    manifest = replace(driver(), core="9.9")
    with pytest.raises(PluginMismatch, match=r"core: driver axisrl-core 9.9, worker axisrl-core 0"):
        PluginManager.restore(manifest)


def test_a_plugin_that_breaks_on_the_worker_is_an_error(site):
    site.add("alpha", "raise RuntimeError('no gpu')")
    manifest = PluginManifest(api=API_VERSION, core=__version__, plugins=(entry("alpha"),))
    with pytest.raises(PluginError, match="RuntimeError: no gpu"):
        PluginManager.restore(manifest)


def test_a_conflict_the_driver_settled_is_settled_on_the_worker(site):
    site.add("alpha")
    site.add("alpha", distribution="other-alpha")
    manifest = driver("alpha", options=PluginOptions(no_plugin=("other-alpha",)))
    restored = PluginManager.restore(manifest)
    active = [r.distribution for r in restored.records() if r.state == "active"]
    assert active == ["axisrl-core", "axisrl-plugin-alpha"]


def run_worker(tmp_path: Path, manifest: PluginManifest, use: str) -> subprocess.CompletedProcess:
    (tmp_path / "manifest.json").write_text(manifest.to_json())
    command = [sys.executable, "-c", WORKER, str(tmp_path / "manifest.json"), use]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_local_file_is_restored_in_another_process_that_cannot_see_it(
    site, tmp_path, monkeypatch
):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "my_world.py"
    path.write_text(FILE)
    manifest = driver(str(path))
    path.unlink()
    ran = run_worker(tmp_path, manifest, "my-world/world")
    assert ran.returncode == 0, ran.stderr
    digest = manifest.plugins[0].sha256
    copy = tmp_path / "axisrl-local" / digest / "my_world.py"
    assert ran.stdout.split() == [f"axisrl_local_{digest[:8]}", str(copy)]
    assert copy.read_text() == FILE


def test_a_planted_copy_of_a_local_file_is_not_what_runs(site, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    path = tmp_path / "world.py"
    path.write_text(FILE)
    manifest = driver(str(path))
    planted = tmp_path / "axisrl-local" / manifest.plugins[0].sha256
    planted.parent.mkdir()
    planted.write_text("a file where the folder should be")
    ran = run_worker(tmp_path, manifest, "world/world")
    assert ran.returncode == 0, ran.stderr


def test_a_local_file_whose_text_was_changed_on_the_way_is_refused(tmp_path):
    path = tmp_path / "world.py"
    path.write_text(FILE)
    changed = driver(str(path)).to_dict()
    changed["plugins"][0]["text"] = "eCA9IDE="
    with pytest.raises(PluginError, match="'world' does not have its hash"):
        PluginManifest.from_dict(changed)


def test_the_largest_local_file_fits(tmp_path):
    path = tmp_path / "world.py"
    path.write_bytes(FILE.encode().ljust(MAX_LOCAL_BYTES, b"#"))
    manifest = driver(str(path))
    assert PluginManifest.from_json(manifest.to_json()) == manifest


def test_a_local_module_that_differs_on_the_worker_is_a_mismatch(site):
    module = site.path / "watch_it.py"
    module.write_text(FILE)
    manifest = driver("watch_it")
    assert manifest.plugins[0].text is None
    module.write_text(FILE + "# changed\n")
    with pytest.raises(PluginMismatch, match="watch-it: driver "):
        PluginManager.restore(manifest)


def test_restored_plugins_of_two_files_with_one_name_do_not_mix(site, tmp_path):
    path = tmp_path / "world.py"
    path.write_text(FILE)
    first = driver(str(path))
    path.write_text(FILE + "x = 1\n")
    second = driver(str(path))
    values = {PluginManager.restore(m).records()[-1].value for m in (first, second)}
    assert len(values) == 2
