"""Tests of axisrl_local.trainer: forward, backward, statistics and what it refuses."""

import dataclasses
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from axisrl.config.losses import ClippedRatioLossConfig
from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.ops.ratio_loss import ClippedRatioLoss as SharedLoss
from axisrl.protocols.loss import LossResult, LossStat
from axisrl.runtime.batch import with_weights
from axisrl.testing.sequences import PullLoss, packed, random_samples, trained
from axisrl.types import BuildContext
from axisrl_local.load import load_model

KINDS = ("llama", "qwen2", "qwen3")


class ClippedRatioLoss:
    """GRPO's clipped ratio, written out; sees NaN where masked."""

    needs = frozenset({"old_logprobs"})
    aggregation = "token_mean"
    sequence_norm = 1

    def __call__(self, batch):
        ratio = (batch.logprobs_N - batch.old_logprobs_N).exp()
        a = batch.advantages_N
        loss = torch.maximum(-a * ratio, -a * ratio.clamp(0.8, 1.2))
        return LossResult(per_token_N=torch.where(batch.mask_N, loss, 0.0))


class ProbeLoss:
    """Remembers its inputs; its statistics are the advantages, reduced in every way."""

    aggregation = "token_mean"
    sequence_norm = 1

    def __init__(self, *needs):
        self.needs = frozenset(needs)
        self.seen = []

    def __call__(self, batch):
        self.seen.append(batch)
        a = batch.advantages_N
        stats = {k: LossStat(values_N=a, reduce=k) for k in ("mean", "sum", "min", "max")}
        return LossResult(
            per_token_N=torch.where(batch.mask_N, -batch.logprobs_N, 0.0), stats=stats
        )


class EntropyLoss(ProbeLoss):
    def __call__(self, batch):
        return LossResult(per_token_N=torch.where(batch.mask_N, -batch.entropy_N, 0.0))


def column(batch, name, values):
    return dataclasses.replace(batch, columns={**batch.columns, name: values})


def advantages(samples):
    """Advantages of both signs and different sizes, so that no two tokens pull alike."""
    rng = np.random.default_rng(5)
    return [
        dataclasses.replace(s, advantages=rng.normal(size=len(s.ids)).astype(np.float32))
        for s in samples
    ]


def gradient(trainer, batches, loss, folder):
    """The gradient of one step, read from the first moment that a checkpoint holds (0.1 g)."""
    from safetensors.torch import load_file

    trainer.step(batches, loss)
    folder.mkdir()
    trainer.save(folder)
    tensors = load_file(folder / "optimizer.safetensors")
    return {k.removeprefix("exp_avg/"): 10 * v for k, v in tensors.items() if "exp_avg/" in k}


def reference_logprobs(spec, samples):
    """Each row alone through transformers' own forward pass; trained tokens only."""
    model = load_model(spec)
    rows = []
    for sample in samples:
        ids, labels = (torch.tensor(x.astype(np.int64)) for x in (sample.ids, sample.labels))
        logits = model(ids[None]).logits[0] / torch.tensor(sample.temperature)[:, None]
        logp = logits.log_softmax(-1).gather(1, labels[:, None])[:, 0]
        rows.append(logp[torch.tensor(sample.loss_mask)])
    return model, torch.cat(rows)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("temperature", [1.0, 0.7, 1.3])
def test_packed_logprobs_are_those_of_each_row_alone(make_model, make_trainer, kind, temperature):
    spec = make_model(kind)
    samples = random_samples(spec, 5, temperature=temperature)
    batch = packed(samples)
    got = trained(batch, make_trainer(spec).logprobs([batch])[0])
    _, want = reference_logprobs(spec, samples)
    np.testing.assert_allclose(got, want.detach().numpy(), atol=1e-5)


@pytest.mark.parametrize("recompute", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("kind", KINDS)
def test_packed_gradients_are_those_of_each_row_alone(
    make_model, make_trainer, tmp_path, kind, recompute
):
    """Pitfall 8: neither packing nor micro-batches change a gradient."""
    spec = make_model(kind)
    samples = random_samples(spec, 5, temperature=0.7)
    trainer = make_trainer(spec, max_grad_norm=0, recompute=recompute)
    got = gradient(trainer, [packed(samples)], PullLoss(), tmp_path / "state")
    model, logprobs = reference_logprobs(spec, samples)
    (-logprobs.mean()).backward()
    want = {name: p.grad for name, p in model.named_parameters()}
    assert got.keys() == want.keys()
    for name, value in want.items():
        torch.testing.assert_close(got[name], value, atol=1e-5, rtol=1e-4, msg=name)


def test_an_untied_model_has_a_gradient_for_its_head(make_model, make_trainer, tmp_path):
    spec = make_model("qwen2", tie_word_embeddings=False)
    batch = packed(random_samples(spec, 3))
    grads = gradient(make_trainer(spec), [batch], PullLoss(), tmp_path / "state")
    assert grads["lm_head.weight"].any() and grads["model.embed_tokens.weight"].any()


def test_a_sliding_window_reaches_the_attention(make_model, make_trainer):
    sliding = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 0}
    layers = {"layer_types": ["sliding_attention"] * 2}
    spec = make_model("qwen2", **sliding, **layers)
    samples = random_samples(spec, 4)
    batch = packed(samples)
    got = trained(batch, make_trainer(spec).logprobs([batch])[0])
    _, want = reference_logprobs(spec, samples)
    np.testing.assert_allclose(got, want.detach().numpy(), atol=1e-5)


def test_gradient_of_a_grpo_loss_agrees_with_finite_differences(make_model, make_trainer, tmp_path):
    spec = make_model("llama")
    samples = with_weights(advantages(random_samples(spec, 4)), "token_mean", 1)
    batch = packed(samples)
    trainer = make_trainer(spec, max_grad_norm=0)
    old = trainer.logprobs([batch])[0] + np.float32(0.05)
    batch = column(batch, "old_logprobs", old)
    grads = gradient(trainer, [batch], ClippedRatioLoss(), tmp_path / "state")
    generator = torch.Generator().manual_seed(1)
    along = {k: torch.randn(g.shape, generator=generator) for k, g in grads.items()}
    slope = sum(float((grads[k] * along[k]).sum()) for k in grads)

    def loss_at(step):
        model = load_model(spec)
        with torch.no_grad():
            for name, parameter in model.named_parameters():
                parameter += step * along[name]
        path = tmp_path / f"moved{step}"
        model.save_pretrained(path)
        moved = make_trainer(dataclasses.replace(spec, path=path))
        return moved.step([batch], ClippedRatioLoss()).metrics["loss/total"].value

    assert (loss_at(1e-3) - loss_at(-1e-3)) / 2e-3 == pytest.approx(slope, rel=2e-2)


def test_gradients_of_entropy_agree_with_the_whole_logits(make_model, make_trainer, tmp_path):
    spec = make_model("llama")
    samples = random_samples(spec, 3, temperature=1.3)
    trainer = make_trainer(spec, max_grad_norm=0, chunk_tokens=2, kept_logits_mib=0)
    got = gradient(trainer, [packed(samples)], EntropyLoss("entropy"), tmp_path / "state")
    model = load_model(spec)
    entropies = []
    for sample in samples:
        logits = model(torch.tensor(sample.ids.astype(np.int64))[None]).logits[0] / 1.3
        entropy = torch.distributions.Categorical(logits=logits).entropy()
        entropies.append(entropy[torch.tensor(sample.loss_mask)])
    (-torch.cat(entropies).mean()).backward()
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(got[name], parameter.grad, atol=1e-5, rtol=1e-4, msg=name)


def test_the_loss_is_the_sum_of_numerators_times_weights(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 3))
    rng = np.random.default_rng(1)
    batch = column(batch, "weights", rng.random(batch.tokens).astype(np.float32))
    trainer = make_trainer(spec)
    want = -(trainer.logprobs([batch])[0] * batch.columns["weights"]).sum()
    got = trainer.step([batch], PullLoss()).metrics["loss/total"].value
    assert got == pytest.approx(float(want), rel=1e-5)


@pytest.mark.parametrize("parts", [[(0, 1, 2, 3)], [(2,), (3, 0), (1,)], [(3, 2, 1, 0)]])
def test_the_first_update_of_a_window_has_ratio_exactly_one_whatever_the_packing(
    make_model, make_trainer, parts
):
    spec = make_model("llama")
    samples = with_weights(advantages(random_samples(spec, 4)), "token_mean", 1)
    batches = [packed([samples[at] for at in part]) for part in parts]
    loss = SharedLoss(ClippedRatioLossConfig(), BuildContext(run_dir=Path("unused")))
    metrics = make_trainer(spec).step(batches, loss).metrics
    assert [metrics[f"loss/{name}"].value for name in ("ratio", "ratio_max", "ppo_kl")] == [1, 1, 0]
    assert metrics["loss/clip_fraction"].value == 0


@pytest.mark.parametrize("poison", [math.nan, math.inf, 1e4])
def test_nothing_at_masked_positions_changes_the_gradient(
    make_model, make_trainer, tmp_path, poison
):
    """Pitfall 7, down to the weights."""
    spec = make_model("llama")
    samples = with_weights(advantages(random_samples(spec, 4)), "token_mean", 1)
    clean = packed(samples)
    clean = column(clean, "old_logprobs", clean.columns["rollout_logprobs"])
    dirty, mask = clean, clean.columns["loss_mask"]
    names = ("advantages", "rollout_logprobs", "old_logprobs", "temperature", "weights")
    for name in names:
        dirty = column(dirty, name, np.where(mask, clean.columns[name], np.float32(poison)))
    dirty = column(dirty, "labels", np.where(mask, clean.columns["labels"], -100))
    grads = [
        gradient(make_trainer(spec), [batch], ClippedRatioLoss(), tmp_path / name)
        for name, batch in (("clean", clean), ("dirty", dirty))
    ]
    assert all(torch.equal(grads[0][name], grads[1][name]) for name in grads[0])


def test_a_step_without_trained_tokens_is_a_step_with_zero_gradient(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 2))
    masked = column(batch, "loss_mask", np.zeros(batch.tokens, bool))
    trainer = make_trainer(spec)
    before = trainer.weight_update(0).checksum
    stats = trainer.step([masked], PullLoss())
    assert (stats.grad_norm, stats.trained_tokens, stats.tokens) == (0.0, 0, batch.tokens)
    assert trainer.weight_update(1).checksum == before
    assert not trainer.logprobs([masked])[0].any()


def test_an_empty_batch_is_no_batch(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 2))
    columns = {name: array[:0] for name, array in batch.columns.items()}
    empty = dataclasses.replace(
        batch,
        rows=(),
        row_starts=np.zeros(1, np.int32),
        positions=batch.positions[:0],
        columns=columns,
    )
    stats = make_trainer(spec).step([empty, batch], PullLoss())
    assert stats.tokens == batch.tokens
    assert make_trainer(spec).logprobs([empty])[0].shape == (0,)


def test_a_loss_gets_what_it_needs_and_nothing_else(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 2))
    trainer = make_trainer(spec)
    nothing, everything = ProbeLoss(), ProbeLoss("old_logprobs", "entropy")
    trainer.step([batch], nothing)
    current = trainer.logprobs([batch])[0]
    trainer.step([batch], everything)
    assert nothing.seen[0].old_logprobs_N is None and nothing.seen[0].entropy_N is None
    seen = everything.seen[0]
    assert torch.equal(seen.old_logprobs_N, seen.logprobs_N.detach())
    assert not seen.old_logprobs_N.requires_grad
    np.testing.assert_allclose(seen.old_logprobs_N.numpy(), current, atol=1e-6)
    assert bool((seen.entropy_N[seen.mask_N] > 0).all())


def test_given_old_logprobs_and_returns_are_passed_on(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 2))
    given = np.linspace(-3, -1, batch.tokens, dtype=np.float32)
    for name in ("old_logprobs", "returns"):
        batch = column(batch, name, given)
    loss = ProbeLoss("old_logprobs")
    make_trainer(spec).step([batch], loss)
    assert loss.seen[0].old_logprobs_N.tolist() == given.tolist()
    assert loss.seen[0].returns_N.tolist() == given.tolist()


def test_statistics_are_reduced_over_the_trained_tokens_of_the_whole_step(make_model, make_trainer):
    spec = make_model("llama")
    samples = advantages(random_samples(spec, 5))
    batches = [packed(samples[:1]), packed(samples[1:])]
    stats = make_trainer(spec).step(batches, ProbeLoss())
    values = np.concatenate([s.advantages[s.loss_mask] for s in samples])
    got = {name: stats.metrics[f"loss/{name}"] for name in ("mean", "sum", "min", "max")}
    for name, metric in got.items():
        assert metric.value == pytest.approx(float(getattr(values, name)()), abs=1e-5)
        assert metric.reduce == name
    assert got["mean"].weight == len(values) == stats.trained_tokens


def test_a_non_finite_gradient_is_reported_and_changes_no_weight(make_model, make_trainer, caplog):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 2))
    broken = column(batch, "weights", np.full(batch.tokens, np.nan, np.float32))
    trainer = make_trainer(spec)
    before = trainer.weight_update(0).checksum
    with caplog.at_level("WARNING", logger="axisrl"):
        stats = trainer.step([broken], PullLoss())
    assert stats.metrics["loss/skipped_nonfinite"].value == 1.0
    assert "gradient norm is nan" in caplog.text
    assert trainer.weight_update(1).checksum == before
    assert trainer.step([batch], PullLoss()).metrics["loss/skipped_nonfinite"].value == 0.0


def test_the_schedule_is_sized_by_the_runs_updates(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 1))
    trainer = make_trainer(spec, total_steps=4, schedule="linear")
    rates = [trainer.step([batch], PullLoss()).metrics["loss/lr"].value for _ in range(4)]
    assert rates == pytest.approx([1e-2, 7.5e-3, 5e-3, 2.5e-3])


def test_bfloat16_learns_with_float32_masters(make_model, make_trainer):
    spec = make_model("llama", dtype="bfloat16")
    batch = packed(random_samples(spec, 2))
    trainer = make_trainer(spec, lr=1e-3)
    losses = [trainer.step([batch], PullLoss()).metrics["loss/total"].value for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert {tensor.dtype for tensor in trainer.weight_update(1).tensors} == {"bfloat16"}


def test_a_loss_that_needs_what_nobody_computes_is_refused(make_model, make_trainer):
    spec = make_model("llama")
    with pytest.raises(ConfigError, match="the loss needs luck, which the trainer"):
        make_trainer(spec).step([packed(random_samples(spec, 1))], ProbeLoss("luck"))


def test_a_value_loss_is_refused_by_a_policy(make_model, make_trainer):
    spec = make_model("llama")
    with pytest.raises(ConfigError, match="needs values, and model 'llama' has no value head"):
        make_trainer(spec).step([packed(random_samples(spec, 1))], ProbeLoss("values"))


@pytest.mark.parametrize("needs", [(), ("old_logprobs",), ("values", "entropy")])
def test_a_policy_loss_is_refused_by_a_value_model(make_model, make_trainer, needs):
    spec = dataclasses.replace(make_model("llama"), head="value")
    with pytest.raises(ConfigError, match="policy loss was given to the value model"):
        make_trainer(spec).step([packed(random_samples(spec, 1))], ProbeLoss(*needs))


def test_a_model_answers_only_what_its_head_can(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 1))
    with pytest.raises(ConfigError, match="no value head"):
        make_trainer(spec).values([batch])
    with pytest.raises(ConfigError, match="no log-probabilities"):
        make_trainer(dataclasses.replace(spec, head="value")).logprobs([batch])


def test_reference_logprobs_need_no_pass_of_the_trainer(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 2))
    loss = ProbeLoss("reference_logprobs")
    trainer = make_trainer(spec)
    given = np.linspace(-3, -1, batch.tokens, dtype=np.float32)
    trainer.step([column(batch, "reference_logprobs", given)], loss)
    assert loss.seen[0].reference_logprobs_N.tolist() == given.tolist()
    with pytest.raises(ConfigError, match="no column 'reference_logprobs'"):
        trainer.step([batch], loss)


def test_float16_is_refused(make_model, make_trainer):
    with pytest.raises(ConfigError, match="float16"):
        make_trainer(make_model("llama", dtype="float16"))


def test_a_trained_token_of_temperature_zero_is_refused(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 1))
    greedy = column(batch, "temperature", np.zeros(batch.tokens, np.float32))
    with pytest.raises(ConfigError, match="temperature 0"):
        make_trainer(spec).logprobs([greedy])


def test_a_batch_without_weights_is_named(make_model, make_trainer):
    spec = make_model("llama")
    batch = packed(random_samples(spec, 1))
    columns = {name: value for name, value in batch.columns.items() if name != "weights"}
    with pytest.raises(ConfigError, match="no column 'weights'"):
        make_trainer(spec).step([dataclasses.replace(batch, columns=columns)], PullLoss())


def test_a_head_with_a_bias_is_refused(make_model, make_trainer):
    with pytest.raises(EnvironmentProblem, match="output layer"):
        make_trainer(make_model("phi", head_dim=8))
