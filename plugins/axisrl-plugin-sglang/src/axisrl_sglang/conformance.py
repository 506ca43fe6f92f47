"""Inputs with which the engine is tried (:mod:`axisrl.testing`), on a CUDA device."""

from __future__ import annotations

from typing import Any

from axisrl.testing.cases import EngineCase

_SMALL: dict[str, Any] = {
    "attention_backend": "triton",
    "grammar_backend": "none",
    "mem_fraction_static": 0.3,
    "disable_cuda_graph": True,
    "max_total_tokens": 16384,
}


def _case(label: str, **trainer: Any) -> EngineCase:
    return EngineCase(
        use="sglang/engine",
        label=label,
        device="cuda",
        options={"max_context": 256, "hand_over": True, "sglang": _SMALL},
        max_context=256,
        trainer_options={"lr": 1e-3, **trainer},
        tolerance=5e-2,
        limit_s=600.0,
    )


CASES = [
    _case("weights on the same GPU", transport="cuda_ipc"),
    _case("weights in a file", transport="shared_memory"),
    _case("weights over a process group", transport="nccl"),
]
