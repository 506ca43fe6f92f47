import subprocess
import sys

import pytest

from axisrl.errors import UsageError
from axisrl.runtime.claim import claimed

HOLD = """
import sys, time
from pathlib import Path
from axisrl.runtime.claim import claimed
with claimed(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_folder_is_held_by_one_at_a_time_and_nothing_is_added_to_it(tmp_path):
    with claimed(tmp_path):
        with pytest.raises(UsageError, match="goes on in another process"), claimed(tmp_path):
            pass
        assert list(tmp_path.iterdir()) == []
    with claimed(tmp_path):
        pass


def test_a_killed_process_holds_nothing(tmp_path):
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"held\n"
        with pytest.raises(UsageError), claimed(tmp_path):
            pass
        other.kill()
    with claimed(tmp_path):
        pass
