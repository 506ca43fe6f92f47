"""Offers the trainer's weights to engines as one safetensors file per version.

1. The file is complete before it has its name (written beside it, then renamed).
2. The newest version and the one before it stay; older ones are removed, all of them at the end.
3. The name carries the run and the process, so that two runs on a machine never meet; files of a
   dead process of the same run (a killed run leaves some) are removed at the start.

It does not gather weights over ranks.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from safetensors.torch import save_file
from torch import Tensor

from axisrl.ops.checksum import weights_checksum
from axisrl.types import TensorMeta, WeightUpdate

_SHARED_MEMORY = Path("/dev/shm")
_KEPT = 2


class WeightPublisher:
    """Writes into memory shared by the machine, or under ``run_dir / "weights"``."""

    def __init__(self, run_dir: Path, transport: Literal["shared_memory", "disk"]) -> None:
        self._transport: Literal["shared_memory", "disk"] = transport
        self._folder = run_dir / "weights" if transport == "disk" else _shared_folder()
        self._run = hashlib.sha256(str(run_dir.resolve()).encode()).hexdigest()[:12]
        self._files: list[Path] = []
        self._remove_orphans()

    def publish(self, version: int, weights: Mapping[str, Tensor]) -> WeightUpdate:
        """Write ``weights`` (Hugging Face names, tied ones once) as ``version``."""
        self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"axisrl-{self._run}-{os.getpid()}-v{version}.safetensors"
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
        )

    def close(self) -> None:
        """Remove every file that is left; idempotent."""
        for path in self._files:
            path.unlink(missing_ok=True)
        self._files.clear()

    def _retire(self, newest: Path) -> None:
        self._files = [path for path in self._files if path != newest] + [newest]
        while len(self._files) > _KEPT:
            self._files.pop(0).unlink(missing_ok=True)

    def _remove_orphans(self) -> None:
        for path in self._folder.glob(f"axisrl-{self._run}-*"):
            owner = path.name.split("-")[2]
            if owner.isdecimal() and not _alive(int(owner)):
                path.unlink(missing_ok=True)


def _shared_folder() -> Path:
    usable = _SHARED_MEMORY.is_dir() and os.access(_SHARED_MEMORY, os.W_OK)
    return _SHARED_MEMORY if usable else Path(tempfile.gettempdir())


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
