"""Every loss that is installed has the local trainer's value, statistics and gradient norm on the
same batch; so have its parts in an objective: a correction, a KL penalty, an entropy bonus."""

import dataclasses
import importlib.util

import numpy as np
import pytest
import torch

from axisrl.config.schema import EntropyConfig, KlConfig
from axisrl.ops.objective import Objective
from axisrl.plugins.components import ComponentRef
from axisrl.plugins.manager import PluginManager
from axisrl.runtime.batch import with_weights
from axisrl.testing.sequences import packed, random_samples
from axisrl.types import BuildContext, ModelSpec

pytestmark = pytest.mark.needs("megatron", "axisrl_local")
ROWS = 12
KL, ENTROPY = KlConfig(coef=0.1), EntropyConfig(coef=0.05)
OBJECTIVE = "grpo/grpo, corrected, with kl and entropy"
NEEDS_GRPO = pytest.mark.skipif(
    not importlib.util.find_spec("axisrl_grpo"), reason="needs axisrl-plugin-grpo"
)


def offered():
    """Ids of the losses that installed plugins offer."""
    manager = manager_of_all()
    return sorted(
        f"{record.name}/{loss.name}"
        for record in manager.records()
        for loss in record.components.get("loss", ())
    )


def manager_of_all():
    manager = PluginManager.discover()
    manager.activate([record.name for record in manager.records()], required=False)
    return manager


LOSSES = [*offered(), pytest.param(OBJECTIVE, marks=NEEDS_GRPO)]


@pytest.fixture
def loss_of(tmp_path):
    """id -> the loss with the options it has unless told otherwise."""
    manager, context = manager_of_all(), BuildContext(run_dir=tmp_path, seed=0)

    def make(name):
        if name != OBJECTIVE:
            return manager.build("loss", ComponentRef(kind="loss", use=name), context)
        loss = manager.build("loss", ComponentRef(kind="loss", use="grpo/grpo"), context)
        ref = ComponentRef(kind="correction", use="icepop/icepop")
        correction = manager.build("correction", ref, context)
        return Objective(loss, [("icepop", correction)], KL, ENTROPY)

    return make


def batch_for(loss, spec, trainer, count):
    """Rows, two of each trajectory, from a policy and a value model near the trainer's own."""
    rng = np.random.default_rng(11)
    samples = random_samples(spec, count, temperature=0.8)
    whole = packed(samples)
    answers = trainer.values if spec.head == "value" else trainer.logprobs
    own = np.split(answers([whole])[0], whole.row_starts[1:-1])

    def near(values, by):
        return (values + by * rng.normal(size=len(values))).astype(np.float32)

    changed = [
        dataclasses.replace(
            sample,
            trajectory=number // 2,
            advantages=near(np.zeros(len(row)), 1.0),
            returns=near(row, 0.5),
            old_logprobs=near(row, 0.3),
            rollout_logprobs=near(row, 0.3),
            reference_logprobs=near(row, 0.5),
            old_values=near(row, 0.3),
        )
        for number, (sample, row) in enumerate(zip(samples, own, strict=True))
    ]
    weighted = with_weights(changed, loss.aggregation, loss.sequence_norm)
    batch = packed(weighted)
    more = {
        name: np.concatenate([getattr(sample, name) for sample in weighted])
        for name in ("old_logprobs", "reference_logprobs", "old_values", "returns")
    }
    return dataclasses.replace(batch, columns={**batch.columns, **more})


def metrics(trainer, batch, loss):
    """What a step measures, twice."""
    steps = [trainer.step([batch], loss) for _ in range(2)]
    return [
        {name: metric.value for name, metric in step.metrics.items()} | {"norm": step.grad_norm}
        for step in steps
    ]


def compared(spec, loss, make_trainer, make_local, count):
    """Megatron's and the local trainer's measurements."""
    trainer, local = (make(spec, lr=1e-3) for make in (make_trainer, make_local))
    batch = batch_for(loss, spec, local, count)
    return metrics(trainer, batch, loss), metrics(local, batch, loss)


def spec_for(loss, make, **options):
    return make("qwen3", head="value" if "values" in loss.needs else "lm", **options)


@pytest.mark.parametrize("name", LOSSES)
def test_it_is_the_local_trainers(make_model, make_trainer, make_local, loss_of, name):
    loss = loss_of(name)
    spec = spec_for(loss, make_model)
    found, wanted = compared(spec, loss, make_trainer, make_local, ROWS)
    for got, want in zip(found, wanted, strict=True):
        assert got == pytest.approx(want, rel=1e-3, abs=2e-5)
    assert abs(wanted[0]["loss/total"]) > 1e-4 and wanted[0]["norm"] > 1e-3


@pytest.fixture(scope="module")
def calm(tmp_path_factory):
    """(family, options) -> a model as it is initialised, whose logits are small: what bfloat16
    loses is then a thousandth of a log-probability."""
    from transformers import AutoConfig, AutoModelForCausalLM

    def make(kind, head):
        config = AutoConfig.for_model(
            kind,
            vocab_size=96,
            hidden_size=128,
            head_dim=32,
            intermediate_size=128,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
        )
        with torch.random.fork_rng():
            torch.manual_seed(7)
            path = tmp_path_factory.mktemp(kind)
            AutoModelForCausalLM.from_config(config).save_pretrained(path)
        return ModelSpec(name=kind, path=path, dtype="bfloat16", device="cuda", head=head)

    return make


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", LOSSES)
def test_in_bfloat16_its_value_is_the_local_trainers(
    calm, make_trainer, make_local, loss_of, record_property, name
):
    loss = loss_of(name)
    found, wanted = compared(spec_for(loss, calm), loss, make_trainer, make_local, 16 * ROWS)
    got, want = found[0]["loss/total"], wanted[0]["loss/total"]
    record_property("loss, megatron and local", [got, want])
    assert got == pytest.approx(want, abs=1e-3)
