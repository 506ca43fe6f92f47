"""Inputs with which the components of this plugin are tried (:mod:`axisrl.testing`)."""

from __future__ import annotations

from axisrl.testing.cases import EngineCase, ModelCase, TrainerCase

_LEARNING_RATE = 1e-3
_LORA = {"rank": 4, "alpha": 8}
_LORA_RATE = 1e-2
"""B starts at 0: a step must move it far enough to be seen."""


def _lora(**options: object) -> dict[str, object]:
    return {"lr": _LORA_RATE, "lora": {**_LORA, **options}}


CASES = [
    ModelCase(use="local/tiny"),
    ModelCase(use="local/smollm2-135m", needs_network=True),
    EngineCase(
        use="local/engine",
        options={"max_batch": 16, "max_context": 256},
        max_context=256,
        trainer_options={"lr": _LEARNING_RATE},
    ),
    EngineCase(
        use="local/engine",
        label="fewer slots than requests, weights on disk",
        options={"max_batch": 3, "max_context": 256},
        max_context=256,
        trainer_options={"lr": _LEARNING_RATE, "transport": "disk"},
    ),
    EngineCase(
        use="local/engine",
        label="weights over a process group",
        options={"max_batch": 16, "max_context": 256},
        max_context=256,
        trainer_options={"lr": _LEARNING_RATE, "transport": "nccl"},
    ),
    EngineCase(
        use="local/engine",
        label="merged adapter",
        options={"max_batch": 16, "max_context": 256},
        max_context=256,
        trainer_options=_lora(),
    ),
    EngineCase(
        use="local/engine",
        label="adapter alone",
        options={"max_batch": 16, "max_context": 256},
        max_context=256,
        trainer_options=_lora(update="adapter"),
    ),
    TrainerCase(use="local/trainer", options={"lr": _LEARNING_RATE}),
    TrainerCase(use="local/trainer", label="merged adapter", options=_lora()),
    TrainerCase(
        use="local/trainer",
        label="adapter alone",
        options=_lora(update="adapter", targets=["q_proj", "up_proj"]) | {"recompute": True},
    ),
    TrainerCase(
        use="local/trainer",
        label="recompute, small chunks, weights over a process group",
        options={
            "lr": _LEARNING_RATE,
            "transport": "nccl",
            "recompute": True,
            "chunk_tokens": 3,
            "kept_logits_mib": 0,
            "schedule": "cosine",
        },
    ),
]
