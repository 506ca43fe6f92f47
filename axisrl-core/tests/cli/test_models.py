from __future__ import annotations

from click.testing import CliRunner

from axisrl.cli.main import main


def models(*arguments: str):
    return CliRunner().invoke(main, ["models", *arguments])


def test_the_list_shows_models_of_every_installed_plugin(toy, site):
    site.add("broken", "raise RuntimeError('no')")
    result = models()
    assert result.exit_code == 0
    assert "nano" in result.output
    assert "toy/nano" in result.output
    assert "A test model" in result.output
    assert models("list").output == result.output


def test_fetch_prints_the_folder_in_the_cache(toy, tmp_path, monkeypatch):
    monkeypatch.setenv("AXISRL_CACHE_DIR", str(tmp_path / "cache"))
    result = models("fetch", "nano")
    assert result.exit_code == 0
    assert result.output.strip() == str(tmp_path / "cache/nano")
    assert (tmp_path / "cache/nano/config.json").is_file()


def test_a_missing_model_exits_with_3_and_lists_what_there_is(toy, tmp_path):
    result = models("fetch", str(tmp_path / "none"))
    assert result.exit_code == 3
    assert result.stderr.startswith("error: there is no model in ")
    assert "fix: " in result.stderr
