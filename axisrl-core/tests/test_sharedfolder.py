import os
import subprocess
import sys

from axisrl.sharedfolder import SharedFolder

HOLD = """
import pathlib, sys
from axisrl.sharedfolder import SharedFolder
folder = SharedFolder("test", sys.argv[2], pathlib.Path(sys.argv[1]))
(folder.path / "array").write_text("x")
print(folder.path, flush=True)
sys.stdin.read()
"""


def holder(base, key):
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(base), key],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    return process


def kill(process):
    process.kill()
    process.wait()


def test_processes_that_name_the_same_key_share_a_folder(tmp_path):
    process = holder(tmp_path, "a")
    shared = SharedFolder("test", "a", tmp_path)
    assert (shared.path / "array").read_text() == "x"
    kill(process)


def test_what_a_killed_process_left_goes_when_the_next_folder_of_its_kind_is_opened(tmp_path):
    kill(holder(tmp_path, "a"))
    (left,) = tmp_path.iterdir()
    assert (left / "array").exists()
    SharedFolder("other", "b", tmp_path)
    assert left.exists()
    SharedFolder("test", "b", tmp_path)
    assert not left.exists()


def test_a_folder_that_somebody_holds_stays(tmp_path):
    process = holder(tmp_path, "a")
    SharedFolder("test", "b", tmp_path).close()
    assert len(list(tmp_path.iterdir())) == 1
    kill(process)


def test_closing_removes_the_folder_and_is_idempotent(tmp_path):
    folder = SharedFolder("test", "a", tmp_path)
    assert not folder.closed
    folder.close()
    folder.close()
    assert folder.closed
    assert list(tmp_path.iterdir()) == []


def test_only_its_user_can_look_into_a_folder(tmp_path):
    folder = SharedFolder("test", "a", tmp_path)
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
