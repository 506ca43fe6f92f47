"""Turn-level credit in a whole run: what a turn earned is credited to it and to the turns before
it, not to the turns after."""

import json
from pathlib import Path

import numpy as np
import pytest

PLUGIN = str(Path(__file__).with_name("talks.py"))
TALKS = (
    "env={use: talks/echo, turns: 2}",
    "dataset=talks/letters",
    "verifiers.correct=null",
    "rewards.main={use: core/sum, turn_level: true}",
    "advantage={use: talks/gae, whiten: false}",
    "loss=ppo/ppo",
    "value={loss: ppo/value, trainer: {use: local/trainer, lr: 0.005}}",
    "rollout.max_turns=2",
    "rollout.sampling.max_tokens=12",
    "eval=null",
    "checkpoint.every=0",
)


@pytest.fixture
def talked(make_run):
    """A run of two updates; what the value model and GAE said is in ``noted``, by rollout."""
    recipe = ("gsm8k/grpo-cpu", "--smoke", "--plugin", PLUGIN)
    run = make_run("talked", *TALKS, "train.updates=2", recipe=recipe)
    run.whole()
    lines = (run.dir / "noted.jsonl").read_text().splitlines()
    run.noted = {noted["id"]: noted for noted in map(json.loads, lines)}
    return run


def rows(run):
    return [row for step in sorted(run.rollouts()) for row in run.rollouts()[step]]


def test_every_turn_gets_what_it_and_the_turns_after_it_earned(talked):
    kinds = set()
    for row in rows(talked):
        said = [m["content"] for m in row["messages"] if m["role"] == "assistant"]
        earned = [float(row["task"]["data"]["answer"] in text) for text in said]
        assert row["turn_rewards"] == earned
        noted = talked.noted[row["summary"]["id"]]
        first, last = noted["tokens"]
        to_come = np.repeat([sum(earned), earned[1]], [first, last])
        expected = to_come - np.asarray(noted["values"])
        assert noted["advantages"] == pytest.approx(expected.tolist(), abs=1e-5)
        kinds.add(tuple(earned))
    assert {(1.0, 0.0), (0.0, 1.0)} <= kinds, "the policy never earned at one turn alone"
