"""One side of ``loss_cost.py``: one way to a loss and its gradients, once a turn.

Started by that script, a process of its own for each side and shape: its peak memory is then its
own. After its last turn it writes ``seconds`` of each turn and ``peak_bytes``, as JSON.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from axisrl_local.trainer_config import TrainerConfig
from baton import pause
from loss_part import PLAIN, Inputs, LossPart, Shape, Way, cross_entropy

_STATUS = Path("/proc/self/status")
"""Linux's own count, in KiB."""
_UNIT = 1 if sys.platform == "darwin" else 1024
"""Bytes of the unit in which getrusage counts peak memory."""


class PeakMemory:
    """The most that was in use at once beyond what is in use now: resident memory of the process
    on a CPU, what PyTorch allocates on CUDA."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._before = 0
        gc.collect()
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
        self._before = self.bytes()

    def bytes(self) -> int:
        """So far."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) - self._before
        return _resident_peak() - self._before


def way_of(side: str, inputs: Inputs, config: TrainerConfig) -> Way:
    """``plain`` or a variant of axisrl's."""
    return cross_entropy if side == PLAIN else LossPart(side, inputs, config)


def timed(way: Way, inputs: Inputs) -> float:
    """Seconds of one pass, forward and backward, with fresh gradients."""
    inputs.hidden_MH.grad = inputs.weight_VH.grad = None
    device = inputs.hidden_MH.device
    _finish(device)
    begun = time.perf_counter()
    way(inputs)
    _finish(device)
    return time.perf_counter() - begun


def serve(job: Mapping[str, Any]) -> dict[str, Any]:
    """Take the job's ``turns``; the first is a warm-up and its time is left out."""
    side, config = job["side"], TrainerConfig(**job["trainer"])
    device, dtype = torch.device(job["device"]), getattr(torch, job["dtype"])
    # A few tokens first: libraries that load themselves are no memory of the work.
    few = Shape(tokens=8, vocabulary=64, hidden=8).inputs(device, dtype)
    way_of(side, few, config)(few)
    inputs = Shape(**job["shape"]).inputs(device, dtype)
    peak = PeakMemory(device)
    way = way_of(side, inputs, config)
    seconds = []
    for _ in range(job["turns"]):
        pause()
        seconds.append(timed(way, inputs))
        if device.type == "cuda":
            torch.cuda.empty_cache()
    pause()
    return {"seconds": seconds[1:], "peak_bytes": peak.bytes()}


def main() -> None:
    """Measure as the job file says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("job", type=Path, help="JSON written by loss_cost.py")
    job = json.loads(parser.parse_args().job.read_text())
    if job["threads"]:
        torch.set_num_threads(job["threads"])
    Path(job["output"]).write_text(json.dumps(serve(job)))


def _resident_peak() -> int:
    """The most bytes of this process that were resident at once."""
    if _STATUS.exists():
        # getrusage counts the process that started this one in.
        line = next(x for x in _STATUS.read_text().splitlines() if x.startswith("VmHWM:"))
        return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _UNIT


def _finish(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


if __name__ == "__main__":
    main()
