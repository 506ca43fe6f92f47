"""Two trainer ranks on Ray: the run that one rank makes, and one that goes on bit for bit."""

import pytest

SHORT = ("train.updates=4", "checkpoint.every=1", "eval=null")
RANKS = ("placement.kind=ray", "placement.trainer_ranks=2")
GSPO = ("loss=grpo/gspo", "train.updates_per_sync=2")
PPO = (
    "advantage={use: ppo/gae, gamma: 0.99, lam: 0.9}",
    "loss=ppo/ppo",
    "value={loss: ppo/value, trainer: {use: local/trainer, lr: 0.005}}",
)


def assert_close(ranked, alone):
    import torch

    assert ranked.series("reward/mean")[0] == alone.series("reward/mean")[0]
    for name in ("loss/total", "loss/grad_norm", "value/total"):
        assert ranked.series(name) == pytest.approx(alone.series(name), abs=1e-5, rel=1e-4), name
    for name in ("train/tokens", "train/trained_tokens", "train/rows"):
        assert ranked.series(name) == alone.series(name)
    mine, theirs = ranked.final_weights(), alone.final_weights()
    names = [name for name in theirs if "/model/" in name]
    assert names and mine.keys() == theirs.keys()
    worst = max(float((mine[n].double() - theirs[n].double()).abs().max()) for n in names)
    assert worst < 1e-4
    assert any(not torch.equal(mine[n], theirs[n]) for n in names), "did two ranks really train?"


@pytest.mark.parametrize("algorithm", [(), GSPO], ids=["grpo", "gspo"])
def test_two_ranks_learn_what_one_learns(make_run, algorithm):
    pytest.importorskip("ray")
    ranked = make_run("ranked", *SHORT, *RANKS, *algorithm)
    alone = make_run("alone", *SHORT, *algorithm)
    ranked.whole()
    alone.whole()
    assert_close(ranked, alone)


def test_two_ranks_of_policy_and_value_model_go_on_after_a_kill(make_run, same_run):
    pytest.importorskip("ray")
    whole, killed = (make_run(name, *SHORT, *RANKS, *PPO) for name in ("whole", "killed"))
    whole.whole()
    killed.kill_after(2)
    killed.resume()
    same_run(killed, whole)
    alone = make_run("alone", *SHORT, *PPO)
    alone.whole()
    assert_close(whole, alone)
