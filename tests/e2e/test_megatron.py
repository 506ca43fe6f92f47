"""Policy and value model on Megatron-core, each over two ranks on Ray that divide its tokens, its
layers or their number, beside a frozen reference: a run that is killed goes on bit for bit."""

from pathlib import Path

import pytest
import torch

SHORT = ("train.updates=4", "checkpoint.every=1", "eval=null", "kl.coef=0.01")
CPU_STAGES = Path(__file__).with_name("cpu_stages.py")


def divided(*by):
    """How the policy is, and the value model."""
    policy, value = (f"{{use: megatron/trainer, lr: 0.005, {each}: 2}}" for each in by)
    return (
        "placement.kind=ray",
        "placement.trainer_ranks=2",
        "advantage={use: ppo/gae, gamma: 0.99, lam: 0.9}",
        "loss=ppo/ppo",
        f"trainer={policy}",
        f"value={{loss: ppo/value, trainer: {value}}}",
    )


def test_a_run_of_divided_models_goes_on_after_a_kill(make_run, same_run):
    pytest.importorskip("ray")
    pytest.importorskip("megatron.core")
    by = divided("context", "tensor")
    whole, killed = (make_run(name, *SHORT, *by) for name in ("whole", "killed"))
    whole.whole()
    killed.kill_after(2)
    killed.resume()
    same_run(killed, whole)
    assert max(whole.series("loss/mismatch_max")) < 1e-4, "engine and trainer disagree"


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there are GPUs, stages are on them")
def test_rank_0_of_a_pipeline_tells_what_the_last_stage_found(make_run):
    pytest.importorskip("ray")
    pytest.importorskip("megatron.core")
    short = ("train.updates=2", "checkpoint.every=2", "kl.coef=0.01", "train.updates_per_sync=2")
    run = make_run("run", "--plugin", str(CPU_STAGES), *short, *divided("pipeline", "pipeline"))
    run.whole()
    assert max(run.series("loss/mismatch_max")) < 1e-4, "engine and trainer disagree"
    for name in ("loss/total", "loss/grad_norm", "value/total", "value/grad_norm"):
        assert len(run.series(name)) == 2 and all(run.series(name)), name
    assert {"trainer", "value"} <= run.models()
