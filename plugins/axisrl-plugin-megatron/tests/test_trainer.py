"""Tests of axisrl_megatron.trainer, held, net, mesh, received and checkpoint; what every trainer
promises is in test_conformance, equality with the local trainer in test_parity."""

import dataclasses
import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from axisrl.errors import (
    CheckpointError,
    ConfigError,
    EnvironmentProblem,
    WeightSyncError,
)
from axisrl.testing.sequences import PullLoss, packed, random_samples
from axisrl.types import AdapterMeta

pytestmark = pytest.mark.needs("megatron")


def step(trainer, spec, seed=0):
    return trainer.step([packed(random_samples(spec, 3, seed=seed))], PullLoss())


def test_float16_is_refused(make_model, make_trainer):
    with pytest.raises(ConfigError, match="no float16"):
        make_trainer(make_model(dtype="float16"))


def test_a_device_that_is_not_there_is_refused(make_model, make_trainer, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(EnvironmentProblem, match="sees no CUDA device"):
        make_trainer(dataclasses.replace(make_model(), device="cuda"))


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"recompute_granularity": "full"}, "recomputes on CUDA devices alone"),
        ({"recompute_granularitty": "full"}, "did you mean recompute_granularity"),
        ({"fp8_param": "yes"}, "fp8_param: 'yes' does not fit"),
        ({"fp8_param": True}, "Megatron refuses these options"),
        ({"inference_fuse_tp_communication": True}, "Megatron refuses .* inference_optimized"),
    ],
)
def test_an_option_that_megatron_does_not_take_is_told(make_model, make_trainer, options, told):
    with pytest.raises(ConfigError, match=told):
        make_trainer(make_model(), megatron=options)


def test_a_layers_tokens_are_not_divided_where_megatron_cannot(make_model, tmp_path):
    from axisrl_megatron.config import MegatronConfig
    from axisrl_megatron.held import HeldModel
    from axisrl_megatron.layout import Layout

    config = MegatronConfig(tensor=2, sequence=True)
    mesh = SimpleNamespace(layout=Layout(tensor=2, sequence=True))
    with pytest.raises(ConfigError, match=r"sequence: .* on CUDA devices alone"):
        HeldModel(make_model(vocab_size=96), config, mesh, seed=0)


def test_an_option_reaches_megatron(make_model, make_trainer):
    trainer = make_trainer(make_model(), megatron={"fp32_residual_connection": True})
    assert trainer._held().net.config.fp32_residual_connection


def test_a_residual_stream_in_float32_runs_through_bfloat16_layers(make_model, make_trainer):
    spec = make_model("qwen3", dtype="bfloat16")
    batch = packed(random_samples(spec, 2))
    plain, wide = (
        make_trainer(spec, total_steps=None, megatron=options).logprobs([batch])[0]
        for options in ({}, {"fp32_residual_connection": True})
    )
    np.testing.assert_allclose(plain, wide, atol=0.1)


def test_the_core_attention_is_the_class_that_is_named(make_model, make_trainer):
    spec = make_model()
    batch = packed(random_samples(spec, 2))
    plain, mean = (
        make_trainer(spec, **options).logprobs([batch])[0]
        for options in ({}, {"attention": f"{__name__}:OwnValue"})
    )
    assert not np.allclose(plain, mean)


class OwnValue(torch.nn.Module):
    """Every token attends to itself alone."""

    def __init__(self, config, layer_number, **options):
        super().__init__()
        self.groups = config.num_attention_heads // config.num_query_groups

    def forward(self, query, key, value, attention_mask, **options):
        return value.repeat_interleave(self.groups, dim=2).flatten(2)


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
def test_flex_attention_through_the_seam_answers_as_the_default(make_model, make_trainer, kind):
    spec = make_model(kind)
    batches = [packed(random_samples(spec, 4, seed=seed)) for seed in range(2)]
    plain, flex = (
        make_trainer(spec, total_steps=None, **options).logprobs(batches)
        for options in ({}, {"attention": "axisrl_megatron.flex:FlexRowAttention"})
    )
    for got, want in zip(flex, plain, strict=True):
        np.testing.assert_allclose(got, want, atol=2e-5)


@pytest.mark.parametrize("name", ["nowhere:Thing", "axisrl_megatron.attention:Nothing"])
def test_a_core_attention_that_is_not_there_is_told(make_model, make_trainer, name):
    with pytest.raises(ConfigError, match="cannot be imported"):
        make_trainer(make_model(), attention=name)


def test_a_folder_that_lacks_weights_is_refused(make_model, make_trainer, tmp_path):
    spec = make_model(tie_word_embeddings=False)
    for file in spec.path.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    tensors = load_file(tmp_path / "model.safetensors")
    del tensors["lm_head.weight"], tensors["model.layers.1.mlp.up_proj.weight"]
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(EnvironmentProblem, match=r"lacks 3 weights, first lm_head\.weight"):
        make_trainer(dataclasses.replace(spec, path=tmp_path))


def test_several_models_of_a_process_share_its_groups_and_the_last_gives_them_up(
    make_model, make_trainer
):
    spec = make_model()
    one, other = make_trainer(spec), make_trainer(spec, total_steps=None)
    one.stop()
    assert torch.distributed.is_initialized()
    assert other.logprobs([packed(random_samples(spec, 1))])
    other.stop()
    assert not torch.distributed.is_initialized()


def test_a_start_that_fails_leaves_no_groups(make_model, make_trainer):
    with pytest.raises(ConfigError):
        make_trainer(make_model(), attention="nowhere:Thing")
    assert not torch.distributed.is_initialized()


def test_a_foreign_process_group_is_refused(make_model, make_trainer):
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        with pytest.raises(EnvironmentProblem, match="already has a torch process group"):
            make_trainer(make_model())
    finally:
        torch.distributed.destroy_process_group()


def test_an_update_that_is_not_finite_is_skipped(make_model, make_trainer):
    spec = make_model()
    trainer = make_trainer(spec)
    before = trainer.weight_update(1).checksum
    batch = packed(random_samples(spec, 2))
    columns = dict(batch.columns) | {"weights": np.full(batch.tokens, np.inf, np.float32)}
    stats = trainer.step([dataclasses.replace(batch, columns=columns)], PullLoss())
    assert stats.metrics["loss/skipped_nonfinite"].value == 1
    assert trainer.weight_update(2).checksum == before


def test_a_frozen_model_takes_no_step_and_a_trained_one_no_weights(make_model, make_trainer):
    spec = make_model()
    frozen, trained = make_trainer(spec, total_steps=None), make_trainer(spec)
    with pytest.raises(EnvironmentProblem, match="cannot make a step"):
        step(frozen, spec)
    with pytest.raises(EnvironmentProblem, match="does not take another's"):
        trained.update_weights(trained.weight_update(1))


@pytest.mark.parametrize(
    "changes",
    [
        {"transport": "cuda_ipc"},
        {"adapter": AdapterMeta(rank=1, scale=1.0, targets=("model.layers.0.mlp.up_proj",))},
    ],
    ids=["cuda_ipc", "adapter"],
)
def test_weights_that_a_frozen_model_cannot_receive_are_refused(make_model, make_trainer, changes):
    spec = make_model()
    frozen, trained = make_trainer(spec, total_steps=None), make_trainer(spec)
    update = dataclasses.replace(trained.weight_update(1), **changes)
    with pytest.raises(WeightSyncError, match="cannot receive"):
        frozen.update_weights(update)


def test_a_checkpoint_names_everything_as_hugging_face_does(make_model, make_trainer, tmp_path):
    spec = make_model("qwen2")
    trainer = make_trainer(spec)
    step(trainer, spec)
    trainer.save(tmp_path)
    names = set(load_file(spec.path / "model.safetensors"))
    with safe_open(tmp_path / "optimizer" / "00000.safetensors", framework="pt") as file:
        found = set(file.keys())
    assert {name.removeprefix("exp_avg/") for name in found if name.startswith("exp_avg/")} == names
    assert set(load_file(tmp_path / "model" / "model.safetensors")) == names
    assert (tmp_path / "model" / "chat_template.jinja").exists()


def test_a_damaged_checkpoint_is_told(make_model, make_trainer, tmp_path):
    spec = make_model()
    trainer = make_trainer(spec)
    trainer.save(tmp_path)
    counters = tmp_path / "trainer.json"
    counters.write_text(json.dumps(json.loads(counters.read_text()) | {"format": 0}))
    with pytest.raises(CheckpointError, match="has format 0, not 1"):
        trainer.load(tmp_path)
    counters.unlink()
    with pytest.raises(CheckpointError, match="cannot be loaded"):
        trainer.load(tmp_path)


def test_a_checkpoint_that_lacks_a_file_is_told(make_model, make_trainer, tmp_path):
    trainer = make_trainer(make_model())
    trainer.save(tmp_path)
    (tmp_path / "optimizer" / "00000.safetensors").unlink()
    with pytest.raises(CheckpointError, match="optimizer has 0 of 1 files"):
        trainer.load(tmp_path)


def test_a_checkpoint_of_another_model_is_told(make_model, make_trainer, tmp_path):
    trainer = make_trainer(make_model())
    trainer.save(tmp_path)
    with pytest.raises(CheckpointError, match=r"make \(\d+"):
        make_trainer(make_model(intermediate_size=128)).load(tmp_path)
