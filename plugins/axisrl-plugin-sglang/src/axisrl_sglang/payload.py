"""What SGLang's own weight update carries for us: a description, and buckets by CUDA IPC handle.

SGLang hands ``serialized_named_tensors`` to the custom loader of each of its ranks as (name,
tensor) pairs. The first name is a JSON description; the tensors after it are the buckets. They are
opened in SGLang's ranks: this process never maps them.
"""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import torch
from torch.multiprocessing import reductions

from axisrl.ops.cuda_ipc import rebuild_arguments
from axisrl_sglang.messages import Weights

LOADER = "axisrl_sglang.loading.load"
"""Runs in SGLang's ranks."""


class _Shared:
    """Unpickled, it is the shared tensor that ``described`` describes."""

    def __init__(self, described: dict[str, Any]) -> None:
        self._arguments = rebuild_arguments(described)

    def __reduce__(self) -> tuple[Any, ...]:
        return reductions.rebuild_cuda_tensor, self._arguments


def payload(weights: Weights, reports: Path) -> bytes:
    """The bytes for one rank, which writes its reports to ``reports``."""
    description: dict[str, Any] = {**weights._asdict(), "reports": str(reports), "entries": []}
    tensors: list[tuple[str, Any]] = []
    if weights.transport == "cuda_ipc":
        buckets = json.loads(Path(weights.location).read_text(encoding="utf-8"))
        description["entries"] = [bucket["entries"] for bucket in buckets]
        tensors = [("", _Shared(bucket["memory"])) for bucket in buckets]
    first = (json.dumps(description), torch.empty(0, dtype=torch.uint8))
    return pickle.dumps([first, *tensors])
