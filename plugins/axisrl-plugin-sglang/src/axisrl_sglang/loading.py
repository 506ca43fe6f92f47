"""Loads new weights inside SGLang's ranks (its ``custom_weight_loader``), and tells how it went.

1. Nothing is changed before the checksum of what was received is the one announced.
2. Where SGLang holds FP8 blocks, they are made of what was received (:mod:`axisrl_sglang.fp8`).
3. SGLang's own ``load_weights`` puts each tensor where it is served from: fused, sliced by rank.
4. Then every served value is compared with the one that was loaded (:mod:`axisrl_sglang.landing`).
5. It never raises: an exception here would end SGLang's scheduler. Rank 0 writes the reports of
   all ranks to one file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor

from axisrl.ops.checksum import buckets_checksum, weights_checksum
from axisrl.ops.flat_buckets import Bucket, entries_from, views
from axisrl_sglang.fp8 import for_blocks
from axisrl_sglang.landing import served
from axisrl_sglang.messages import Report

Named = Sequence[tuple[str, Tensor]]


def load(model: Any, named_tensors: Named) -> None:
    """SGLang's signature. ``named_tensors`` is what :mod:`axisrl_sglang.payload` packed."""
    wanted = json.loads(named_tensors[0][0])
    try:
        buckets = [
            Bucket(tensor, entries_from(entries))
            for (_, tensor), entries in zip(named_tensors[1:], wanted["entries"], strict=True)
        ]
        report = _take(model, buckets, wanted)
    except Exception as problem:  # noqa: BLE001 - it must be told, not end the scheduler
        report = Report(problem=f"{type(problem).__name__}: {problem}")
    reports = _gathered(report)
    if reports:
        path = Path(wanted["reports"])
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps([each._asdict() for each in reports]), encoding="utf-8")
        partial.replace(path)


def _take(model: Any, buckets: Sequence[Bucket], wanted: Mapping[str, Any]) -> Report:
    received, checksum = _received(model, buckets, wanted)
    if wanted["checksum"] and checksum != wanted["checksum"]:
        return Report(checksum, "what arrived is not what was sent")
    with torch.no_grad():
        received = for_blocks(model, received)
    try:
        with torch.no_grad():
            problem = _load(model, received, verify=wanted["verify"])
    except Exception as broken:  # noqa: BLE001 - half-loaded weights must be told
        problem = f"{type(broken).__name__}: {broken}"
    return Report(checksum, problem, bool(problem))


def _received(
    model: Any, buckets: Sequence[Bucket], wanted: Mapping[str, Any]
) -> tuple[dict[str, Tensor], str]:
    """The tensors on the model's device, and their checksum."""
    if wanted["shared"]:
        shared = {name: value for bucket in buckets for name, value in views(bucket).items()}
        return shared, buckets_checksum(buckets)
    device = str(next(iter(model.parameters())).device)
    received: dict[str, Tensor] = {}
    for path in _files(Path(wanted["location"])):
        with safe_open(path, framework="pt", device=device) as file:
            received |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return received, weights_checksum(received)


def _files(location: Path) -> list[Path]:
    """The safetensors files of an update, or of a model's folder."""
    if location.is_file():
        return [location]
    index = location / "model.safetensors.index.json"
    if not index.is_file():
        return [location / "model.safetensors"]
    names = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
    return [location / name for name in sorted(set(names))]


def _load(model: Any, received: Mapping[str, Tensor], *, verify: bool) -> str:
    if not verify:
        model.load_weights(iter(received.items()))
        return ""
    return served(model, received)


def _gathered(report: Report) -> list[Report]:
    """The reports of all ranks, on rank 0; nothing on the others."""
    distributed = torch.distributed
    if not (distributed.is_initialized() and distributed.get_world_size() > 1):
        return [report]
    reports: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(reports, report)
    return reports if distributed.get_rank() == 0 else []
