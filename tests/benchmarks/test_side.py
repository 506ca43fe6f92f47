"""Tests of benchmarks/side.py and benchmarks/baton.py: two processes that take turns."""

import io
import sys

import pytest

TURNS = """
import sys
sys.path.insert(0, {folder!r})
from baton import pause
for _ in range(3):
    pause()
    print("noise")
"""


@pytest.fixture
def start(tmp_path):
    import baton
    from side import Side

    def begin(text):
        script = tmp_path / "script.py"
        script.write_text(text.format(folder=str(baton.__file__).rpartition("/")[0]))
        return Side("probe", [sys.executable, str(script)], 1, tmp_path / "probe.log")

    return begin


def test_a_side_does_one_update_a_turn(start):
    with start(TURNS) as side:
        side.wait_until_ready()
        taken = [side.update() for _ in range(2)]
        side.finish()
    assert all(each.wall_s > 0 and each.cpu_s >= 0 for each in taken)


def test_a_side_that_ends_early_shows_the_end_of_its_log(start):
    from side import SideFailed

    with (
        start("raise SystemExit('out of luck')") as side,
        pytest.raises(SideFailed, match="out of luck"),
    ):
        side.wait_until_ready()


def test_a_side_that_fails_at_the_end_is_an_error(start):
    from side import SideFailed

    with start(TURNS + "raise SystemExit('too late')") as side:
        side.wait_until_ready()
        for _ in range(2):
            side.update()
        with pytest.raises(SideFailed, match="too late"):
            side.finish()


def test_leaving_ends_a_side_that_still_waits(start):
    with start(TURNS) as side:
        side.wait_until_ready()
    assert side._process.poll() is not None


def test_the_baton_waits_for_a_line_and_reports_cpu_time(monkeypatch, capsys):
    import baton

    monkeypatch.setattr(sys, "stdin", io.StringIO("go\n"))
    baton.axisrl_run_started(object())
    mark, seconds = capsys.readouterr().out.split()
    assert mark == baton.MARK and float(seconds) > 0


def test_the_baton_ends_the_run_when_the_benchmark_is_gone(monkeypatch):
    import baton

    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    with pytest.raises(SystemExit):
        baton.axisrl_weights_updated(object())


def test_axisrl_takes_the_baton_as_a_plugin():
    import baton
    from axisrl.plugins.manager import PluginManager

    manager = PluginManager.discover(local=[baton.__file__])
    manager.activate(["baton"])
    assert "baton" in [entry.name for entry in manager.manifest().plugins]
