import json
import subprocess
import sys

from click.testing import CliRunner

from axisrl.cli.runs import changes, runs
from axisrl.runfolder import RunFolder


def invoke(*args):
    result = CliRunner().invoke(runs, args, catch_exceptions=False)
    assert result.exit_code == 0
    return result.output


def test_the_list_shows_state_step_and_reward(run_dir):
    head, line = invoke().splitlines()
    assert head.split() == ["name", "state", "step", "reward", "recipe"]
    assert line.split() == ["demo", "completed", "3", "0.750", "gsm8k/grpo-cpu"]


def test_list_is_the_same_with_and_without_its_name(run_dir):
    assert invoke("list") == invoke()


def test_an_empty_output_folder_says_how_to_start(output_root):
    assert "axisrl run RECIPE" in invoke()


def test_the_list_as_json_is_one_document(run_dir):
    (found,) = json.loads(invoke("--json"))
    assert (found["name"], found["reward"], found["resume"]) == ("demo", 0.75, "")


def test_an_interrupted_run_shows_how_to_go_on(run_dir):
    manifest = run_dir / "manifest.json"
    manifest.write_text(manifest.read_text().replace("completed", "interrupted"))
    (run_dir / "checkpoints/step-000002").mkdir(parents=True)
    (run_dir / "checkpoints/step-000002/COMPLETE").write_text("")
    assert "--resume" in invoke()
    assert "go on:" in invoke("show", "demo")


def test_show_gives_reward_and_evaluation_from_first_to_last(run_dir):
    shown = invoke("show")
    assert "0.125 -> 0.750" in shown
    assert "0.000 -> 0.500" in shown
    assert "eval/accuracy_low" not in shown


def test_show_gives_the_answers_to_the_same_task_before_and_after(run_dir):
    shown = invoke("show", "demo")
    assert "of 2 tasks, 1 newly right, 0 newly wrong" in shown
    assert shown.index("before  [wrong]") < shown.index("after   [right] #### 7")


def test_show_includes_an_answer_that_stayed_wrong(run_dir):
    assert "after   [wrong] still no" in invoke("show")


def test_show_ends_with_the_folder_and_the_command_for_its_curves(run_dir):
    folder, curves = invoke("show").splitlines()[-2:]
    assert folder.endswith(str(run_dir.resolve()))
    assert curves.endswith("axisrl view demo")


def test_model_text_cannot_drive_the_terminal(run_dir):
    shown = invoke("show")
    assert "\x1b" not in shown
    assert "\u202e" not in shown


def test_show_as_json_has_every_reward(run_dir):
    facts = json.loads(invoke("show", "demo", "--json"))
    assert facts["rewards"] == [0.125, 0.25, 0.75]
    assert facts["eval"]["eval/accuracy"] == {"first": 0.0, "last": 0.5}


def test_a_run_without_a_step_can_be_shown(run_dir):
    (run_dir / "metrics.jsonl").write_text("")
    assert "no step yet" in invoke("show")


def test_the_greedy_answer_of_a_task_is_compared_not_a_sampled_one(run_dir):
    pair = next(pair for pair in changes(RunFolder(run_dir)) if pair.outcome == "fixed")
    assert pair.after["messages"][-1]["content"] == "#### 7"


def test_one_evaluation_alone_makes_no_comparison(run_dir):
    (run_dir / "rollouts/eval-000003.jsonl").unlink()
    assert changes(RunFolder(run_dir)) == []


def test_listing_runs_imports_nothing_heavy():
    code = (
        "import sys, axisrl.cli.runs;"
        "print(sorted({'numpy', 'pydantic', 'torch', 'ray', 'rich'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
