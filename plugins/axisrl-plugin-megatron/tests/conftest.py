"""Random models of every family, and trainers of them."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from axisrl.types import BuildContext, ModelSpec

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}
MIXTURE = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 24,
    "norm_topk_prob": True,
}
EXTRA = {"qwen3": {"head_dim": 8}, "qwen3_moe": {"head_dim": 8, **MIXTURE}}
NEEDS = {
    "megatron": importlib.util.find_spec("megatron"),
    "axisrl_local": importlib.util.find_spec("axisrl_local"),
}


def pytest_collection_modifyitems(items):
    """Tests marked ``needs`` are skipped where the module is not installed."""
    for item in items:
        for mark in item.iter_markers("needs"):
            for name in mark.args:
                if NEEDS[name] is None:
                    item.add_marker(pytest.mark.skip(reason=f"needs {name}"))


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """(family, dtype) -> ModelSpec of a two-layer model with seeded random weights; made once."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    specs = {}

    def make(kind="llama", dtype="float32", device="cpu", head="lm", noise=0.2, **changes):
        key = (kind, noise, str(sorted(changes.items())))
        if key not in specs:
            options = {"tie_word_embeddings": True, **SIZES, **EXTRA.get(kind, {}), **changes}
            config = AutoConfig.for_model(kind, **options)
            with torch.random.fork_rng():
                torch.manual_seed(7)
                model = AutoModelForCausalLM.from_config(config)
                for parameter in model.parameters():
                    parameter.data += noise * torch.randn_like(parameter)
            path = tmp_path_factory.mktemp(kind)
            model.save_pretrained(path)
            (path / "chat_template.jinja").write_text("{{ messages }}")
            specs[key] = path
        return ModelSpec(name=kind, path=specs[key], dtype=dtype, device=device, head=head)

    return make


@pytest.fixture(scope="session")
def four():
    """Four processes, of which a job may ask for fewer; see test_ranks.py."""
    ranks = importlib.import_module(f"{__name__.rpartition('.')[0]}.test_ranks")
    processes = ranks.Processes(4)
    yield processes
    processes.close()


@pytest.fixture(scope="session")
def pair(four):
    """Two of them."""
    return four.first(2)


@pytest.fixture
def make_trainer(tmp_path):
    """(spec, options) -> a started Megatron trainer; all are stopped at the end of the test."""
    from axisrl_megatron.config import MegatronConfig
    from axisrl_megatron.trainer import MegatronTrainer

    yield from starting(MegatronTrainer, MegatronConfig, tmp_path)


@pytest.fixture
def make_local(tmp_path):
    """The same with the local plugin's trainer, to compare with."""
    from axisrl_local.trainer import LocalTrainer
    from axisrl_local.trainer_config import TrainerConfig

    yield from starting(LocalTrainer, TrainerConfig, tmp_path)


def starting(trainer_class, config_class, run_dir):
    made = []

    def make(spec, *, total_steps=10, seed=0, **options):
        context = BuildContext(run_dir=run_dir, seed=seed)
        trainer = trainer_class(config_class(**{"lr": 1e-2, **options}), context)
        trainer.start(spec, total_steps)
        made.append(trainer)
        return trainer

    yield make
    for trainer in made:
        trainer.stop()
