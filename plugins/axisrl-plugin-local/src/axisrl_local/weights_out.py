"""Offers the trainer's weights to engines as one safetensors file per version.

1. The file is complete before it has its name (written beside it, then renamed).
2. The newest version and the one before it stay; older ones are removed, all of them at the end.
3. Each publisher has a :class:`axisrl.sharedfolder.SharedFolder` of its own, so that two runs on a
   machine never meet, and what a killed one left is removed by the next.

It does not gather weights over ranks.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from safetensors.torch import save_file
from torch import Tensor

from axisrl.ops.checksum import weights_checksum
from axisrl.sharedfolder import SharedFolder
from axisrl.types import AdapterMeta, TensorMeta, WeightUpdate

_KEPT = 2


class WeightPublisher:
    """Writes into memory shared by the machine, or under ``run_dir / "weights"``."""

    def __init__(self, run_dir: Path, transport: Literal["shared_memory", "disk"]) -> None:
        self._transport: Literal["shared_memory", "disk"] = transport
        base = run_dir / "weights" if transport == "disk" else None
        self._folder = SharedFolder("weights", uuid.uuid4().hex, base)
        self._files: list[Path] = []

    def publish(
        self, version: int, weights: Mapping[str, Tensor], adapter: AdapterMeta | None = None
    ) -> WeightUpdate:
        """Write ``weights`` (Hugging Face names, tied ones once) as ``version``; with ``adapter``
        they are its tensors."""
        path = self._folder.path / f"v{version}.safetensors"
        partial = path.with_suffix(".partial")
        save_file({name: weight.contiguous() for name, weight in weights.items()}, partial)
        partial.replace(path)
        self._retire(path)
        return WeightUpdate(
            version=version,
            transport=self._transport,
            location=str(path),
            tensors=tuple(
                TensorMeta(
                    name=name,
                    shape=tuple(weight.shape),
                    dtype=str(weight.dtype).removeprefix("torch."),
                )
                for name, weight in weights.items()
            ),
            checksum=weights_checksum(weights),
            adapter=adapter,
        )

    def close(self) -> None:
        """Remove every file that is left; idempotent."""
        self._folder.close()
        self._files.clear()

    def _retire(self, newest: Path) -> None:
        self._files = [path for path in self._files if path != newest] + [newest]
        while len(self._files) > _KEPT:
            self._files.pop(0).unlink(missing_ok=True)
