"""Policy and value model on Megatron-core, each over two ranks on Ray that divide its
layers or their number, beside a frozen reference: a run that is killed goes on bit for bit."""

from pathlib import Path

import pytest
import torch

SHORT = ("train.updates=3", "checkpoint.every=1", "eval=null", "kl.coef=0.01")
CPU_STAGES = Path(__file__).with_name("cpu_stages.py")
DIVIDED = (
    "placement.kind=ray",
    "placement.trainer_ranks=2",
    "advantage={use: ppo/gae, gamma: 0.99, lam: 0.9}",
    "loss=ppo/ppo",
    "trainer={use: megatron/trainer, lr: 0.005, pipeline: 2}",
    "value={loss: ppo/value, trainer: {use: megatron/trainer, lr: 0.005, tensor: 2}}",
)


@pytest.mark.skipif(torch.cuda.is_available(), reason="where there are GPUs, stages are on them")
def test_a_run_of_divided_models_goes_on_after_a_kill(make_run, same_run):
    pytest.importorskip("ray")
    pytest.importorskip("megatron.core")
    stages = ("--plugin", str(CPU_STAGES))
    whole, killed = (make_run(name, *stages, *SHORT, *DIVIDED) for name in ("whole", "killed"))
    whole.whole()
    killed.kill_after(2)
    killed.resume()
    same_run(killed, whole)
    assert max(whole.series("loss/mismatch_max")) < 1e-4, "engine and trainer disagree"
    for name in ("loss/total", "loss/grad_norm", "value/total", "value/grad_norm"):
        assert len(whole.series(name)) == 3 and all(whole.series(name)), name
    assert {"trainer", "value"} <= whole.models()
