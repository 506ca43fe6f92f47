"""Two trainer ranks on Ray: the run that one rank makes; one that is killed, takes turns with its
engine or sends its weights makes the same, bit for bit."""

import pytest

SHORT = ("train.updates=3", "checkpoint.every=1", "eval=null")
RANKS = ("placement.kind=ray", "placement.trainer_ranks=2")
GSPO = ("train.updates=4", "loss=grpo/gspo", "train.updates_per_sync=2")
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


@pytest.fixture(scope="module")
def whole(make_shared_run):
    """Two ranks of a policy and of a value model, from beginning to end."""
    pytest.importorskip("ray")
    run = make_shared_run("whole", *SHORT, *RANKS, *PPO)
    run.whole()
    return run


def test_two_ranks_learn_what_one_learns(make_run):
    pytest.importorskip("ray")
    ranked = make_run("ranked", *SHORT, *RANKS, *GSPO)
    alone = make_run("alone", *SHORT, *GSPO)
    ranked.whole()
    alone.whole()
    assert_close(ranked, alone)


def test_two_ranks_of_policy_and_value_model_learn_what_one_of_each_learns(make_run, whole):
    alone = make_run("alone", *SHORT, *PPO)
    alone.whole()
    assert_close(whole, alone)


def test_they_go_on_after_a_kill(make_run, same_run, whole):
    killed = make_run("killed", *SHORT, *RANKS, *PPO)
    killed.kill_after(2)
    killed.resume()
    same_run(killed, whole)


def test_they_take_turns_with_one_engine(make_run, same_run, whole):
    colocated = make_run("colocated", *SHORT, *RANKS, *PPO, "placement.colocate=true")
    colocated.whole()
    same_run(colocated, whole)


def test_they_send_two_engines_what_one_of_them_writes_to_a_file(make_run, same_run, whole):
    sent = ("trainer.transport=nccl", "placement.engines=2")
    run = make_run("sent", *SHORT, *RANKS, *PPO, *sent)
    run.whole()
    same_run(run, whole)
