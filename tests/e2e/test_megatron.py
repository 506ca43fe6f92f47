"""Policy and value model on Megatron-core, each divided over two ranks on Ray, beside a frozen
reference: a run that is killed goes on bit for bit."""

import pytest

SHORT = ("train.updates=4", "checkpoint.every=1", "eval=null", "kl.coef=0.01")
TRAINER = "{use: megatron/trainer, lr: 0.005, tensor: 2}"
DIVIDED = (
    "placement.kind=ray",
    "placement.trainer_ranks=2",
    "advantage={use: ppo/gae, gamma: 0.99, lam: 0.9}",
    "loss=ppo/ppo",
    f"trainer={TRAINER}",
    f"value={{loss: ppo/value, trainer: {TRAINER}}}",
)


def test_a_run_of_divided_models_goes_on_after_a_kill(make_run, same_run):
    pytest.importorskip("ray")
    pytest.importorskip("megatron.core")
    whole, killed = (make_run(name, *SHORT, *DIVIDED) for name in ("whole", "killed"))
    whole.whole()
    killed.kill_after(2)
    killed.resume()
    same_run(killed, whole)
    assert max(whole.series("loss/mismatch_max")) < 1e-4, "engine and trainer disagree"
