"""What ``axisrl run --dry-run`` shows, refuses and leaves alone."""

import pytest


def test_a_dry_run_shows_everything_and_starts_nothing(run, fake, output_root):
    result = run("toy/base", "--name", "a", "--dry-run", "env.size=2")
    assert result.exit_code == 0
    assert fake.calls == []
    assert "  size: 2  # command line" in result.output
    assert "toy/world" in result.output
    assert "axisrl-plugin-toy" in result.output
    assert "axisrl_toy.parts:World" in result.output
    assert "windows: 10, each 2 tasks x 4 rollouts" in result.output
    assert [path.name for path in (output_root / "a").iterdir()] == ["config.yaml"]


def test_a_folder_of_a_dry_run_is_no_existing_run(run, fake):
    run("toy/base", "--name", "a", "--dry-run")
    assert run("toy/base", "--name", "a").exit_code == 0
    assert len(fake.calls) == 1


def test_a_dry_run_refuses_an_existing_run_and_never_touches_it(run, output_root):
    run("toy/base", "--name", "a")
    before = {p: p.read_bytes() for p in (output_root / "a").rglob("*") if p.is_file()}
    again = run("toy/base", "--name", "a", "--dry-run")
    assert again.exit_code == 2
    assert "exists" in again.stderr
    assert run("toy/base", "--name", "a", "--dry-run", "--overwrite", "env.size=9").exit_code == 0
    assert run("--resume", "a", "--dry-run").exit_code == 0
    assert {p: p.read_bytes() for p in (output_root / "a").rglob("*") if p.is_file()} == before


def test_a_dry_run_lets_plugins_look_at_models_that_are_on_this_machine(run, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    assert run("toy/base", "--dry-run", f"model={tmp_path}").exit_code == 0
    (tmp_path / "unlucky").touch()
    result = run("toy/base", "--dry-run", f"model={tmp_path}")
    assert result.exit_code == 2
    assert "error: model: " in result.stderr
    assert "is unlucky" in result.stderr


def test_a_dry_run_with_ray_shows_the_processes(run):
    result = run("toy/base", "--dry-run", "placement=ray", "rollout.workers=3")
    lines = [line.split() for line in result.output.splitlines()]
    assert ["rollout", "workers", "3", "0.25", "0", "a", "local", "Ray"] in lines


@pytest.mark.parametrize(
    ("words", "shown", "work"),
    [
        ((), ["trainer", "engine", "rollout"], "rollouts, then 1 updates of 8 rollouts"),
        (("mode=rollout",), ["engine", "rollout"], "windows: 10, each 2 tasks x 4 rollouts\n"),
        (("mode=eval", "eval.dataset=toy/tasks"), ["engine", "rollout"], "all tasks, once\n"),
        (("mode=mismatch", "offline.rollouts=a"), ["trainer"], "windows: 1, each 2 tasks"),
    ],
)
def test_a_dry_run_shows_what_the_mode_would_start(run, words, shown, work):
    output = run("toy/base", "--dry-run", "placement=ray", *words).output
    parts = [line.split()[0] for line in output.splitlines() if line.endswith("a local Ray")]
    assert parts == shown
    assert work in output
