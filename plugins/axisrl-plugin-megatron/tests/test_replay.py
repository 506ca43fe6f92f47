"""Experts that an engine chose are chosen again: through the net against transformers with the same
experts forced, and read ahead."""

import asyncio
import dataclasses
from concurrent.futures import Future

import numpy as np
import pytest
import torch

from axisrl.errors import ConfigError, StoreError
from axisrl.runtime.routing import experts_of
from axisrl.testing.sequences import PullLoss, packed, random_samples, trained
from axisrl.types import Handle

pytestmark = pytest.mark.needs("megatron")
MIXED = {"num_hidden_layers": 3, "mlp_only_layers": [1], "num_experts": 8}
LAYERS, TOP = 3, 2


class Kept:
    """A store of the experts of ``samples``, and a reader of it. Picklable."""

    def __init__(self, samples, *, unknown=0, layers=LAYERS):
        rng = np.random.default_rng(4)
        self.arrays, self.samples, self.asked = {}, [], []
        for number, sample in enumerate(samples):
            tokens = len(sample.ids)
            chosen = rng.permuted(np.tile(np.arange(8), (layers, tokens, 1)), axis=2)
            self.arrays[str(number)] = chosen[..., :TOP].astype(np.uint8)
            at = np.arange(tokens, dtype=np.int32)
            at[:unknown] = -1
            handle = Handle(
                store="s",
                key=str(number),
                shape=(layers, tokens, TOP),
                dtype="|u1",
                owner="o",
                checksum=0,
            )
            self.samples.append(
                dataclasses.replace(sample, experts_at=at, handles={"routing": handle})
            )

    async def get(self, handle):
        if handle.key not in self.arrays:
            raise StoreError(f"{handle.key} is not there any more")
        return self.arrays[handle.key][slice(*handle.rows)]

    def __call__(self, batch, layers):
        self.asked.append((batch.rows, layers))
        found = Future()
        try:
            found.set_result(asyncio.run(experts_of(self, batch, layers)))
        except StoreError as problem:
            found.set_exception(problem)
        return found


@pytest.fixture
def spec(make_model):
    return make_model("qwen3_moe", **MIXED)


@pytest.fixture
def kept(spec):
    return Kept(random_samples(spec, 4))


@pytest.fixture
def replaying(tmp_path):
    """(spec, reader, options) -> a started trainer that replays; stopped at the end."""
    from axisrl.types import BuildContext
    from axisrl_megatron.config import MegatronConfig
    from axisrl_megatron.trainer import MegatronTrainer

    made = []

    def make(spec, read, total_steps=10, **options):
        config = MegatronConfig(**{"lr": 1e-3, **options})
        trainer = MegatronTrainer(config, BuildContext(run_dir=tmp_path, seed=0))
        made.append(trainer)
        trainer.replay_routing(read)
        trainer.start(spec, total_steps)
        return trainer

    yield make
    for trainer in made:
        trainer.stop()


def forced(spec, monkeypatch, samples, experts):
    """transformers' log-probabilities of the trained tokens, the k-th row's experts (layers, T, K)
    forced; -1 is its own choice. With the gradient of minus their weighted sum, its norm."""
    from transformers import AutoModelForCausalLM
    from transformers.models.qwen3_moe import modeling_qwen3_moe as modeling

    model = AutoModelForCausalLM.from_pretrained(spec.path, dtype=torch.float32)
    sparse = [n for n, layer in enumerate(model.model.layers) if hasattr(layer.mlp, "gate")]
    gates = {id(model.model.layers[n].mlp.gate): n for n in sparse}
    row = []

    def forward(self, hidden_states):
        logits = torch.nn.functional.linear(hidden_states.flatten(0, -2), self.weight)
        probs = logits.softmax(-1, dtype=torch.float32)
        given = torch.from_numpy(experts[row[0]][gates[id(self)]].astype(np.int64))
        chosen = torch.where(given < 0, probs.topk(self.top_k).indices, given)
        weights = probs.gather(1, chosen)
        return logits, weights / weights.sum(-1, keepdim=True), chosen

    monkeypatch.setattr(modeling.Qwen3MoeTopKRouter, "forward", forward)
    found, total = [], 0.0
    for number, sample in enumerate(samples):
        row[:] = [number]
        logits = model(torch.from_numpy(sample.ids[None].astype(np.int64))).logits[0]
        logits = logits / torch.from_numpy(sample.temperature)[:, None]
        labels = torch.from_numpy(sample.labels.astype(np.int64))
        logprobs = logits.log_softmax(-1).gather(1, labels[:, None])[:, 0]
        mask = torch.from_numpy(sample.loss_mask)
        found.append(logprobs[mask].detach().numpy())
        if sample.weights is not None:
            pull = torch.from_numpy(sample.advantages * sample.weights)
            total = total - (logprobs * pull)[mask].sum()
    if isinstance(total, float):
        return np.concatenate(found), None
    total.backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    return np.concatenate(found), float(torch.nn.utils.get_total_norm(grads))


def experts_by_row(kept):
    found = []
    for number, sample in enumerate(kept.samples):
        experts = kept.arrays[str(number)].astype(np.int16)
        experts[:, sample.experts_at < 0] = -1
        found.append(experts)
    return found


@pytest.mark.parametrize("unknown", [0, 2], ids=["all", "some"])
def test_experts_that_were_kept_are_those_of_transformers_with_them_forced(
    spec, replaying, make_trainer, monkeypatch, unknown
):
    """Where they were not kept, the router's own: of a rollout's first tokens, or of all."""
    kept = Kept(random_samples(spec, 4), unknown=unknown)
    batch = packed(kept.samples)
    own = trained(batch, make_trainer(spec).logprobs([batch])[0])
    trainer = replaying(spec, kept)
    got = trained(batch, trainer.logprobs([batch])[0])
    stats = trainer.step([batch], PullLoss())
    want, norm = forced(spec, monkeypatch, kept.samples, experts_by_row(kept))
    np.testing.assert_allclose(got, want, atol=2e-5)
    assert stats.grad_norm == pytest.approx(norm, rel=1e-4)
    tokens = batch.tokens
    fraction = stats.metrics["loss/router_replay_fraction"].value
    assert fraction == pytest.approx((tokens - unknown * len(kept.samples)) / tokens)
    assert np.abs(got - own).max() > 1e-2


def test_the_divergence_from_the_engine_is_that_of_its_experts(
    spec, kept, replaying, make_trainer, monkeypatch
):
    """KL (k1 and k3) between rollout and trainer is 0 with replay, and large without."""
    batch = packed(kept.samples)
    engine, _ = forced(spec, monkeypatch, kept.samples, experts_by_row(kept))
    ends = []
    for trainer in (replaying(spec, kept), make_trainer(spec)):
        ratio = trained(batch, trainer.logprobs([batch])[0]) - engine
        ends.append((abs(float(-ratio.mean())), float((np.exp(ratio) - 1 - ratio).mean())))
    (k1, k3), (k1_own, k3_own) = ends
    assert max(k1, k3) < 1e-5 < 1e-3 < min(k1_own, k3_own)


def test_a_batch_without_experts_is_routed_as_ever(spec, kept, replaying, make_trainer):
    batch = packed(random_samples(spec, 4))
    trainer = replaying(spec, kept)
    got, want = trainer.logprobs([batch])[0], make_trainer(spec).logprobs([batch])[0]
    np.testing.assert_array_equal(got, want)
    assert trainer.step([batch], PullLoss()).metrics["loss/router_replay_fraction"].value == 0
    assert kept.asked == []


def test_the_next_batch_is_read_while_one_is_computed(spec, kept, replaying):
    batches = [packed([sample]) for sample in kept.samples]
    batches = [dataclasses.replace(one, rows=(at,)) for at, one in enumerate(batches)]
    seen = []
    trainer = replaying(spec, kept)
    net = trainer._held().net
    net.register_forward_hook(lambda *passed: seen.append(len(kept.asked)))
    trainer.logprobs(batches)
    assert seen == [2, 3, 4, 4]
    assert [rows for rows, _ in kept.asked] == [(0,), (1,), (2,), (3,)]
    assert {layers for _, layers in kept.asked} == {(0, LAYERS)}


def test_experts_that_are_gone_fail_the_pass_with_what_they_were_for(spec, kept, replaying):
    trainer = replaying(spec, kept)
    kept.arrays.pop("2")
    with pytest.raises(StoreError, match=r"kept for rollout\.routing: 2 is not there"):
        trainer.logprobs([packed(kept.samples)])


def test_experts_of_another_model_are_refused(spec, replaying):
    kept = Kept(random_samples(spec, 2), layers=5)
    with pytest.raises(ConfigError, match=r"2 experts in each of 5 layers, and .* has 2 in 3"):
        replaying(spec, kept).logprobs([packed(kept.samples)])


def test_a_model_without_experts_cannot_replay(make_model, replaying, kept):
    with pytest.raises(ConfigError, match=r"rollout\.routing: the model qwen3 has no experts"):
        replaying(make_model("qwen3"), kept)


def test_models_of_one_process_do_not_mix(spec, kept, replaying, make_trainer):
    from megatron.core.transformer.moe.router_replay import RouterReplay

    batch = packed(kept.samples)
    plain, other = make_trainer(spec), replaying(spec, kept, None)
    want = plain.logprobs([batch])[0]
    replayed = other.logprobs([batch])[0]
    np.testing.assert_array_equal(plain.logprobs([batch])[0], want)
    np.testing.assert_array_equal(other.logprobs([batch])[0], replayed)
    assert RouterReplay.global_router_replay_instances == []


@pytest.mark.parametrize(
    ("size", "options"),
    [
        (2, {"expert": 2}),
        (2, {"tensor": 2, "sequence": True}),
        (4, {"context": 2, "expert": 2}),
        (4, {"pipeline": 2, "virtual": 2, "expert": 2}),
    ],
    ids=str,
)
def test_ranks_replay_what_one_process_replays(four, make_model, tmp_path, size, options):
    import importlib

    ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
    spec = make_model("qwen3_moe", vocab_size=96, num_hidden_layers=4, num_experts=8)
    job = ranks.job_of(spec, tmp_path, options, size=size, micro=3)
    own = ranks.learn(0, 1, job | {"size": 1})[3]
    kept = Kept(job["samples"], layers=4)
    job |= {"samples": kept.samples, "read": kept}
    alone, *found = ranks.learn(0, 1, job | {"size": 1}), *four.learn(job)
    for got in found:
        np.testing.assert_allclose(got[3], alone[3], rtol=2e-4)
    assert not np.allclose(alone[3], own, rtol=1e-3)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_layers_that_are_computed_again_replay_again(spec, kept, replaying):
    batches = [packed([sample]) for sample in kept.samples]
    again = {
        "recompute_granularity": "full",
        "recompute_method": "uniform",
        "recompute_num_layers": 1,
    }
    norms = [
        replaying(dataclasses.replace(spec, device="cuda"), kept, megatron=options)
        .step(batches, PullLoss())
        .grad_norm
        for options in ({}, again)
    ]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
