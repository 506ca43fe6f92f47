"""Tests of benchmarks/update_vs_trl.py: what it computes from what the two sides wrote."""

import dataclasses
import json
from pathlib import Path

import pytest

METRICS = {
    "time/rollout_s": 2.0,
    "time/train_s": 4.0,
    "time/sync_s": 0.5,
    "rollout/tokens_mean": 16.0,
    "train/tokens": 800.0,
}
TIMES = {"rollout_s": 6.0, "train_s": 8.0, "sampled": 96, "tokens": 800, "forwarded": 1000}


@pytest.fixture
def bench():
    import update_vs_trl

    return update_vs_trl


@pytest.fixture
def pair(bench):
    from side import Taken

    ours = bench.axisrl_update(METRICS, 8, Taken(7.0, 12.0))
    return ours, bench.trl_update(TIMES, Taken(14.0, 24.0))


def test_rates_are_tokens_over_the_phase_that_made_them(pair):
    ours, theirs = pair
    assert (ours.sampled, ours.sampled_per_s, ours.trained_per_s) == (128, 64, 200)
    assert (theirs.sampled_per_s, theirs.trained_per_s) == (16, 100)


def test_a_ratio_above_one_means_that_axisrl_is_faster(bench, pair):
    ours, theirs = ([one] for one in pair)
    ratios = {line[0]: line[3] for line in bench.summary(ours, theirs)}
    assert ratios["rollout, s"] == "3.00" and ratios["train, s"] == "2.00"
    assert ratios["total, s"] == "2.00" and ratios["generated tokens/s"] == "4.00"
    assert ratios["trained tokens/s"] == "2.00"


def test_a_phase_that_one_side_does_not_have_gets_no_ratio(bench, pair):
    ours, theirs = ([one] for one in pair)
    assert {line[0]: line[3] for line in bench.summary(ours, theirs)}["sync, s"] == "-"


def test_the_summary_takes_medians_and_shows_the_spread(bench, pair):
    first, theirs = pair
    ours = [dataclasses.replace(first, train=seconds) for seconds in (1.0, 2.0, 9.0)]
    cells = {line[0]: line[1] for line in bench.summary(ours, [theirs])}
    assert cells["train, s"] == "2.00 (1.00 to 9.00)"


def test_the_row_for_the_page_has_the_columns_of_the_page(bench, pair):
    ours, theirs = ([one] for one in pair)
    page = Path(bench.__file__).parents[1] / "docs/benchmarks.md"
    header = next(line for line in page.read_text().splitlines() if "update, s" in line)
    assert bench.row(ours, theirs, "exact").count("|") == header.count("|")


def test_both_sides_get_the_sizes_of_the_command_line(bench, tmp_path):
    args = bench.parse(["--prompts", "2", "--group-size", "4", "--max-tokens", "5"])
    settings = bench.overrides(args, tmp_path)
    assert "train.batch_size=8" in settings and "rollout.group_size=4" in settings
    assert "rollout.sampling.max_tokens=5" in settings
    command = bench.axisrl_command(args, tmp_path, tmp_path / "run")
    assert command[-len(settings) :] == settings


def test_prompts_are_those_of_the_run_and_come_with_answers(bench, tmp_path):
    from axisrl.plugins.manager import PluginManager
    from setting import model_folder

    args = bench.parse(["--updates", "1", "--prompts", "2"])
    model = model_folder("tiny", PluginManager.discover(), tmp_path / "cache")
    job = json.loads(bench.trl_job(args, model, tmp_path, 4).read_text())
    assert len(job["tasks"]) == 4 and job["updates"] == 2 and job["rows"] == 4
    assert all(task["prompt"].endswith("<|im_start|>assistant\n") for task in job["tasks"])
    assert all(task["answer"] for task in job["tasks"])


def test_an_endless_model_has_another_end_token_in_every_file(tmp_path):
    from axisrl.plugins.manager import PluginManager
    from axisrl.runtime.chat import load_tokenizer
    from setting import endless, model_folder

    source = model_folder("tiny", PluginManager.discover(), tmp_path / "cache")
    copy = endless(source, tmp_path / "endless")
    before, after = load_tokenizer(source), load_tokenizer(copy)
    assert len(after.stop_ids) == 1 and not before.stop_ids & after.stop_ids
    assert (copy / "model.safetensors").resolve() == (source / "model.safetensors").resolve()


def test_an_endless_model_needs_a_spare_token(tmp_path):
    from setting import endless

    source = tmp_path / "model"
    source.mkdir()
    (source / "tokenizer.json").write_text('{"added_tokens": [{"content": "<e>", "id": 0}]}')
    (source / "tokenizer_config.json").write_text('{"eos_token": "<e>"}')
    with pytest.raises(ValueError, match="no special token to spare"):
        endless(source, tmp_path / "endless")
