"""Inputs with which the components of this plugin are tried (:mod:`axisrl.testing`)."""

from __future__ import annotations

from axisrl.testing.cases import TrainerCase

CASES = [
    TrainerCase(use="megatron/trainer", options={"lr": 1e-3}),
    TrainerCase(
        use="megatron/trainer",
        label="small chunks, weights over a process group",
        options={
            "lr": 1e-3,
            "chunk_tokens": 3,
            "kept_logits_mib": 0,
            "schedule": "cosine",
            "transport": "nccl",
        },
    ),
]
