"""Every command that only shows something starts without the heavy libraries (no timing here: what
is imported is what it costs)."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "ray", "pydantic", "numpy", "transformers", "huggingface_hub", "wandb")
PROGRAM = """
import json, sys
from axisrl.cli.main import main
try:
    main(sys.argv[1:])
except SystemExit as end:
    code = end.code or 0
print(json.dumps({"code": code, "modules": sorted(sys.modules)}), file=sys.stderr)
"""
COMMANDS = [
    ["--help"],
    ["--version"],
    ["run", "--help"],
    ["chaos", "--help"],
    ["plugins", "--help"],
    ["plugins"],
    ["plugins", "list", "--json"],
    ["config", "--help"],
    ["config", "schema", "--help"],
    ["runs", "--help"],
    ["runs"],
    ["view", "--help"],
    ["models", "--help"],
    ["models"],
    ["doctor", "--help"],
    ["x", "--help"],
]


def outcome(arguments: list[str], tmp_path) -> tuple[int, str, set[str]]:
    environ = {**os.environ, "AXISRL_OUTPUT_DIR": str(tmp_path / "outputs")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env=environ,
        check=False,
    )
    last = json.loads(done.stderr.splitlines()[-1])
    return last["code"], done.stdout, set(last["modules"])


@pytest.mark.parametrize("arguments", COMMANDS, ids=" ".join)
def test_it_imports_no_heavy_library_and_no_plugin_that_is_broken_changes_it(
    arguments, site, tmp_path
):
    """Pitfall 27."""
    _, before, _ = outcome(arguments, tmp_path)
    site.add("broken", "raise SystemExit('gone')")
    code, output, modules = outcome(arguments, tmp_path)
    assert code == 0
    assert modules.isdisjoint(HEAVY)
    if arguments[0] not in ("plugins", "x"):  # those two list it
        assert output == before
    elif "--help" not in arguments:
        assert "broken" in output


def test_importing_the_command_line_imports_click_and_nothing_of_a_run(tmp_path):
    _, _, modules = outcome(["--help"], tmp_path)
    ours = {name for name in modules if name.startswith("axisrl.")}
    assert ours == {"axisrl.cli", "axisrl.cli.lazy", "axisrl.cli.main", "axisrl.errors"}
    assert "pluggy" not in modules
    assert "yaml" not in modules
