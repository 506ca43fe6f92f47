import pytest
from click.testing import CliRunner

from axisrl.cli.view import view
from axisrl.errors import EnvironmentProblem, UsageError
from axisrl.runfolder import RunFolder
from axisrl.view.server import ViewServer


def invoke(*args):
    return CliRunner().invoke(view, args, catch_exceptions=False)


def test_export_writes_one_file_of_the_run(run_dir, tmp_path):
    result = invoke("demo", "--export", str(tmp_path / "demo.html"))
    assert result.exit_code == 0
    assert "demo.html" in result.output
    assert "question a" in (tmp_path / "demo.html").read_text()


def test_export_into_a_missing_folder_says_so(run_dir, tmp_path):
    with pytest.raises(UsageError, match="mkdir -p"):
        invoke("demo", "--export", str(tmp_path / "no" / "demo.html"))


def test_a_port_in_use_is_one_clear_line(run_dir):
    with ViewServer(RunFolder(run_dir), 0) as server:
        port = server.server_address[1]
        with pytest.raises(EnvironmentProblem, match=f"port {port}"):
            invoke("demo", "--port", str(port), "--no-browser")


def test_an_unknown_run_is_a_usage_error(output_root):
    with pytest.raises(UsageError, match="nothing-here"):
        invoke("nothing-here")
