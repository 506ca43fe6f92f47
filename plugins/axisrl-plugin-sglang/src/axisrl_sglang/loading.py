"""Loads new weights inside SGLang's ranks (its ``custom_weight_loader``), and tells how it went.

1. By ``nccl`` each rank receives everything itself, and loads it once all ranks have it.
2. Nothing is changed before the checksum of what was received is the one announced.
3. Where SGLang holds FP8 blocks, they are made of what was received (:mod:`axisrl_sglang.fp8`).
   SGLang's own ``load_weights`` puts each tensor where it is served from: fused, sliced by rank.
4. Then every served value is compared with the one that was loaded (:mod:`axisrl_sglang.landing`).
5. It never raises: an exception here would end SGLang's scheduler. Rank 0 writes the reports of
   all ranks to one file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import torch
from safetensors import safe_open
from torch import Tensor

from axisrl.ops.broadcast.receiver import Party, Receiver
from axisrl.ops.checksum import buckets_checksum, weights_checksum
from axisrl.ops.flat_buckets import Bucket, entries_from, views
from axisrl_sglang.fp8 import for_blocks
from axisrl_sglang.landing import served, untied
from axisrl_sglang.messages import NOTHING_SENT, Report

T = TypeVar("T")
Named = Sequence[tuple[str, Tensor]]
_RECEIVERS: WeakKeyDictionary[Any, Receiver] = WeakKeyDictionary()
"""Of each model that was sent weights: groups are kept from one update to the next."""


def load(model: Any, named_tensors: Named) -> None:
    """SGLang's signature. ``named_tensors`` is what :mod:`axisrl_sglang.payload` packed."""
    wanted = json.loads(named_tensors[0][0])
    try:
        report = _take(model, named_tensors[1:], wanted)
    except Exception as problem:  # noqa: BLE001 - it must be told, not end the scheduler
        report = Report(problem=f"{type(problem).__name__}: {problem}")
    reports = _everywhere(report)
    if _rank() == 0:
        path = Path(wanted["reports"])
        partial = path.with_suffix(".partial")
        partial.write_text(json.dumps([each._asdict() for each in reports]), encoding="utf-8")
        partial.replace(path)


def _take(model: Any, shared: Named, wanted: Mapping[str, Any]) -> Report:
    if wanted["transport"] == NOTHING_SENT:
        return Report(problem=untied(model))
    received, checksum = _received(model, shared, wanted)
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
    model: Any, shared: Named, wanted: Mapping[str, Any]
) -> tuple[dict[str, Tensor], str]:
    """The tensors on the model's device, and their checksum."""
    device = next(iter(model.parameters())).device
    buckets: list[Bucket] = []
    if wanted["transport"] == "nccl":
        buckets = _sent(model, device, wanted)
    elif wanted["transport"] == "cuda_ipc":
        pairs = zip(shared, wanted["entries"], strict=True)
        buckets = [Bucket(tensor, entries_from(entries)) for (_, tensor), entries in pairs]
    if buckets:
        named = {name: value for bucket in buckets for name, value in views(bucket).items()}
        return named, buckets_checksum(buckets)
    received: dict[str, Tensor] = {}
    for path in _files(Path(wanted["location"])):
        with safe_open(path, framework="pt", device=str(device)) as file:
            received |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return received, weights_checksum(received)


def _sent(model: Any, device: torch.device, wanted: Mapping[str, Any]) -> list[Bucket]:
    """What the trainer sends to every rank."""
    party = Party(wanted["receiver"], _rank(), _ranks(), wanted["receivers"])
    receiver = _RECEIVERS.setdefault(model, Receiver())
    return receiver.receive(wanted["location"], party, device, _all_ranks)


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


def _rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def _ranks() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def _all_ranks(mine: bool) -> bool:
    return all(_everywhere(mine))


def _everywhere(mine: T) -> list[T]:
    """What each rank gives, by rank."""
    found: list[Any] = [mine] * _ranks()
    if len(found) > 1:
        torch.distributed.all_gather_object(found, mine)
    return found
