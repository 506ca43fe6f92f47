"""Offers the trainer's weights to engines: one safetensors file per version, or flat buckets on the
GPU (``cuda_ipc``) and a JSON file that describes them.

1. The file is complete before it has its name (written beside it, then renamed).
2. The newest version and the one before it stay; older ones are removed, all of them at the end.
3. Each publisher has a :class:`axisrl.sharedfolder.SharedFolder` of its own, so that two runs on a
   machine never meet, and what a killed one left is removed by the next.

4. Buckets of one version are given up when the next is offered or the weights leave the GPU: by
   then engines have read them. They are copies, so the trainer may go on; one engine rank can read
   them.

It does not gather weights over ranks; :mod:`axisrl.ops.weights_sent` sends them to other GPUs.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

import torch
from safetensors.torch import save_file
from torch import Tensor

from axisrl.errors import EnvironmentProblem
from axisrl.ops.checksum import buckets_checksum, weights_checksum
from axisrl.ops.cuda_ipc import describe
from axisrl.ops.flat_buckets import Bucket, fill
from axisrl.sharedfolder import SharedFolder
from axisrl.types import AdapterMeta, TensorMeta, WeightUpdate

Transport = Literal["shared_memory", "disk", "cuda_ipc"]
_KEPT = 2


class WeightPublisher:
    """Writes into memory shared by the machine, or under ``run_dir / "weights"``."""

    def __init__(self, run_dir: Path, transport: Transport, bucket_bytes: int = 2**29) -> None:
        self._transport: Transport = transport
        self._bucket_bytes = bucket_bytes
        self._buckets: list[Bucket] = []
        base = run_dir / "weights" if transport == "disk" else None
        self._folder = SharedFolder("weights", uuid.uuid4().hex, base)
        self._files: list[Path] = []

    def publish(
        self, version: int, weights: Mapping[str, Tensor], adapter: AdapterMeta | None = None
    ) -> WeightUpdate:
        """Write ``weights`` (Hugging Face names, tied ones once) as ``version``; with ``adapter``
        they are its tensors."""
        shared = self._transport == "cuda_ipc"
        path = self._folder.path / f"v{version}.{'json' if shared else 'safetensors'}"
        partial = path.with_suffix(".partial")
        if shared:
            checksum = self._share(weights, partial)
        else:
            save_file({name: weight.contiguous() for name, weight in weights.items()}, partial)
            checksum = weights_checksum(weights)
        partial.replace(path)
        self._retire(path)
        return WeightUpdate(
            version=version,
            transport=self._transport,
            location=str(path),
            tensors=tensors_of(weights),
            checksum=checksum,
            adapter=adapter,
        )

    def withdraw(self) -> None:
        """Give up what is on offer in a GPU's memory; engines have read it by now."""
        if self._buckets:
            self._buckets.clear()
            torch.cuda.ipc_collect()  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Remove every file that is left; idempotent."""
        self._folder.close()
        self._files.clear()
        self.withdraw()

    def _share(self, weights: Mapping[str, Tensor], path: Path) -> str:
        """Copy the weights into buckets on their GPU and write what maps them; their checksum."""
        off = next((name for name, weight in weights.items() if not weight.is_cuda), None)
        if off is not None:
            raise EnvironmentProblem(
                f"transport cuda_ipc shares memory of a GPU, and {off} is not on one",
                fix="train on a GPU, or set trainer.transport to shared_memory",
            )
        self.withdraw()
        self._buckets = fill(weights, self._bucket_bytes)
        checksum = buckets_checksum(self._buckets)
        described = [
            {"memory": describe(bucket.buffer), "entries": bucket.entries}
            for bucket in self._buckets
        ]
        path.write_text(json.dumps(described), encoding="utf-8")
        return checksum

    def _retire(self, newest: Path) -> None:
        self._files = [path for path in self._files if path != newest] + [newest]
        while len(self._files) > _KEPT:
            self._files.pop(0).unlink(missing_ok=True)


def tensors_of(weights: Mapping[str, Tensor]) -> tuple[TensorMeta, ...]:
    """What an update says of them."""
    return tuple(
        TensorMeta(
            name=name,
            shape=tuple(weight.shape),
            dtype=str(weight.dtype).removeprefix("torch."),
        )
        for name, weight in weights.items()
    )
