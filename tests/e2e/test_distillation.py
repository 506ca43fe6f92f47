"""On-policy distillation: a teacher alone teaches. There is no verifier and no reward."""

import numpy as np
import pytest

SHORT = ("eval=null", "checkpoint.every=0")
STUDENT = (
    *SHORT,
    "train.updates=10",
    "verifiers.correct=null",
    "rewards.main={use: core/sum}",
    "advantage=core/reward",
    "loss=grpo/reinforce",
)


def gaps(run, step, teacher):
    """Student - teacher log-probability of every sampled token of a step, one array a rollout; the
    teacher's by transformers."""
    import torch

    found = {}
    for (name, rollout), nodes in run.traces().items():
        if name != f"step-{step:06d}":
            continue
        ids = [token for _, tokens, *_ in nodes for token in tokens]
        _, said, student, _ = next(node for node in nodes if node[0] == "sampled")
        start = sum(len(tokens) for kind, tokens, *_ in nodes if kind == "prompt")
        assert ids[start : start + len(said)] == said
        with torch.no_grad():
            logits = teacher(torch.tensor([ids])).logits[0].log_softmax(-1)
        rows = logits[start - 1 : start + len(said) - 1]
        picked = rows[torch.arange(len(said)), torch.tensor(said)]
        found[rollout] = np.asarray(student) - picked.numpy()
    return found


def test_the_student_moves_towards_its_teacher_and_needs_nothing_else(make_run):
    from transformers import AutoModelForCausalLM

    taught = make_run("teacher", *SHORT, "train.updates=20")
    taught.whole()
    folder = taught.checkpoint / "trainer" / "model"
    student = make_run("student", *STUDENT, f"teacher={{model: {folder}, alpha: 1}}")
    student.whole()
    assert not any("passed" in name for line in student.metrics() for name in line)
    teacher = AutoModelForCausalLM.from_pretrained(folder)
    first, last = gaps(student, 1, teacher), gaps(student, 10, teacher)
    told = {row["summary"]["id"]: row["advantage"] for row in rows(student, 1)}
    assert told == pytest.approx({name: -gap.mean() for name, gap in first.items()}, abs=1e-4)
    before, after = (np.concatenate([*found.values()]).mean() for found in (first, last))
    assert 0 < after < 0.3 * before, f"KL of student from teacher: {before} then {after}"


def rows(run, step):
    return run.rollouts()[f"step-{step:06d}.jsonl"]
