"""Tests of axisrl_local.folder."""

import logging
import threading

import pytest

from axisrl.errors import EnvironmentProblem
from axisrl_local.folder import damage, make_once

LOGGER = logging.getLogger("test")


def make(folder):
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"w" * 2_000_000)


def test_a_sound_folder_is_not_made_again(tmp_path):
    made = []
    for _ in range(2):
        make_once(tmp_path / "m", lambda folder: (made.append(1), make(folder)), LOGGER)
    assert len(made) == 1


@pytest.mark.parametrize("name", ["config.json", "model.safetensors", "axisrl-model.json"])
def test_a_missing_file_is_damage_and_is_repaired(tmp_path, name):
    folder = make_once(tmp_path / "m", make, LOGGER)
    (folder / name).unlink()
    assert name in damage(folder)
    assert damage(make_once(folder, make, LOGGER)) is None


def test_a_shortened_large_file_is_damage(tmp_path):
    folder = make_once(tmp_path / "m", make, LOGGER)
    (folder / "model.safetensors").write_bytes(b"w" * 1_999_999)
    assert damage(folder) == "model.safetensors has 1999999 bytes, not 2000000"


def test_an_edited_small_file_of_the_same_size_is_damage(tmp_path):
    folder = make_once(tmp_path / "m", make, LOGGER)
    (folder / "config.json").write_text("[]")
    assert damage(folder) == "config.json has another SHA-256"


def test_a_failed_making_leaves_no_folder_behind(tmp_path):
    def fail(folder):
        make(folder)
        raise EnvironmentProblem("no network")

    with pytest.raises(EnvironmentProblem, match="no network"):
        make_once(tmp_path / "m", fail, LOGGER)
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith(".m.lock")] == []


def test_two_at_once_make_it_once(tmp_path):
    made, inside = [], threading.Event()

    def slow(folder):
        made.append(1)
        inside.set()
        make(folder)

    def fetch():
        make_once(tmp_path / "m", slow, LOGGER)

    threads = [threading.Thread(target=fetch) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside.is_set() and len(made) == 1


def test_a_cache_that_is_a_file_is_an_environment_problem(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(EnvironmentProblem, match="cannot be used"):
        make_once(tmp_path / "cache" / "m", make, LOGGER)
