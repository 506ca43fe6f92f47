"""Random models of every supported type, for the trainer's tests."""

from __future__ import annotations

import pytest

from axisrl.types import ModelSpec

SIZES = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
}


@pytest.fixture(scope="session")
def make_model(tmp_path_factory):
    """(type, dtype) -> ModelSpec of a two-layer model with seeded random weights; made once."""
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    specs = {}

    def make(kind="llama", dtype="float32", device="cpu", **changes):
        key = (kind, str(sorted(changes.items())))
        if key not in specs:
            extra = {"head_dim": 8} if kind == "qwen3" else {}
            config = AutoConfig.for_model(kind, tie_word_embeddings=True, **SIZES, **extra)
            config.update(changes)
            with torch.random.fork_rng():
                torch.manual_seed(7)
                model = AutoModelForCausalLM.from_config(config)
                for parameter in model.parameters():
                    parameter.data += 0.2 * torch.randn_like(parameter)
            path = tmp_path_factory.mktemp(kind)
            model.save_pretrained(path)
            (path / "chat_template.jinja").write_text("{{ messages }}")
            specs[key] = path
        return ModelSpec(name=kind, path=specs[key], dtype=dtype, device=device)

    return make


@pytest.fixture
def make_trainer(tmp_path):
    """(spec, options) -> a started trainer; all of them are stopped at the end of the test."""
    from axisrl.types import BuildContext
    from axisrl_local.trainer import LocalTrainer
    from axisrl_local.trainer_config import TrainerConfig

    made = []

    def make(spec, *, total_steps=10, run_dir=tmp_path, seed=0, **options):
        context = BuildContext(run_dir=run_dir, seed=seed)
        trainer = LocalTrainer(TrainerConfig(**{"lr": 1e-2, **options}), context)
        trainer.start(spec, total_steps)
        made.append(trainer)
        return trainer

    yield make
    for trainer in made:
        trainer.stop()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """ModelSpec of ``local/tiny`` on the CPU; made once."""
    from axisrl.config.base import NoConfig
    from axisrl.types import BuildContext
    from axisrl_local.tiny import TinyModel

    cache = tmp_path_factory.mktemp("models")
    path = TinyModel(NoConfig(), BuildContext(run_dir=cache)).fetch(cache)
    return ModelSpec(name="tiny", path=path, device="cpu")


@pytest.fixture
def serve(tiny, tmp_path):
    """(play, options) -> what the coroutine function ``play(engine)`` returns on a started
    engine."""
    import asyncio

    from axisrl.types import BuildContext
    from axisrl_local.config import EngineConfig
    from axisrl_local.engine import LocalEngine

    async def run(play, spec, options):
        config = EngineConfig(**{"max_batch": 8, "max_context": 256, **options})
        engine = LocalEngine(config, BuildContext(run_dir=tmp_path))
        await engine.start(spec)
        try:
            return await play(engine)
        finally:
            await engine.stop()

    def start(play, spec=tiny, **options):
        return asyncio.run(run(play, spec, options))

    return start
