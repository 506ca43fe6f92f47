"""Mistakes in what a run learns by: each is refused before anything starts, with one line that
names the key, and one that says what to do."""

import re

import pytest
from click.testing import CliRunner

from axisrl.cli.main import main

GAE = "advantage=ppo/gae"
VALUE = "value.loss=ppo/value"
TEACHER = "teacher.model=tiny"
MISTAKES = [
    ((GAE,), r"advantage ppo/gae is computed from a value model, and the run has none"),
    ((VALUE,), r"value has no effect: advantage grpo/group uses no value model"),
    ((GAE, VALUE, "loss={use: ppo/value}"), r"loss: ppo/value trains the value model"),
    ((GAE, "value.loss=grpo/grpo"), r"value\.loss: grpo/grpo trains the policy model"),
    (
        (GAE, VALUE, "train.updates=3", "value.warmup_updates=3"),
        r"value\.warmup_updates 3 leaves none of train\.updates 3",
    ),
    (("corrections=[icepop/token-tis]", "loss.base=rollout"), r"it holds that weight already"),
    (("corrections=[icepop/icepop, icepop/icepop]",), r"icepop/icepop is listed already"),
    (("loss={use: grpo/kimi2-5}", "corrections=[icepop/token-tis]"), r"would count twice"),
    ((TEACHER, "teacher.alpha=0"), r"teacher: alpha 0\.0 is not in \(0, 1\]"),
    (("teacher.alpha=0.5",), r"teacher\.model is required"),
    (("kl.reset_every=2",), r"kl\.reset_every 2 has no effect with kl\.coef 0"),
    (
        ("kl.coef=0.1", "kl.base=old", "kl.reset_every=2"),
        r"kl\.reset_every 2 has no effect with kl\.base old",
    ),
    (("entropy.step=0.5",), r"entropy\.step 0\.5 has no effect with entropy\.target null"),
    (
        ("entropy.target=1", "entropy.coef=3"),
        r"entropy: coef 3\.0 is not in \[0, max_coef 0\.1\]",
    ),
    (("offline.rollouts=x",), r"offline\.rollouts has no effect unless mode is train_offline"),
    (("env=null",), r"env is required"),
    (("dataset=null",), r"dataset is required"),
    (("mode=train_offline",), r"loss grpo/grpo needs what was recorded at sampling"),
    (("loss={use: core/sft}", TEACHER), r"teacher has no effect: it changes advantages"),
    (("sampler=hard",), r"sampler\.strategy"),
    (("trainer.lora.rank=0",), r"trainer\.lora: rank 0 must be >= 1"),
]


@pytest.mark.parametrize(("overrides", "said"), MISTAKES, ids=[m[1][:50] for m in MISTAKES])
def test_a_mistake_is_one_line_with_the_way_out(tmp_path, monkeypatch, overrides, said):
    monkeypatch.setenv("AXISRL_OUTPUT_DIR", str(tmp_path))
    arguments = ("run", "gsm8k/grpo-cpu", "--smoke", "--run-dir", str(tmp_path / "run"))
    result = CliRunner().invoke(main, [*arguments, *overrides])
    assert result.exit_code == 2, result.output
    problem, *fix = result.output.splitlines()
    assert problem.startswith("error: ")
    assert re.search(said, problem), problem
    assert len(fix) <= 1 and all(line.startswith("fix: ") for line in fix)
    assert not (tmp_path / "run").exists()
