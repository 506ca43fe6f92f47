"""torch's random generators as the trainer alone sees them.

Training may draw (dropout, a loss that samples). What it draws must depend on the run's seed and
the steps taken, not on what else this process does, so the global generators are swapped for the
trainer's own around each step and put back after it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import Tensor


class Generators:
    """The generators of the CPU and, where it trains on one, of a CUDA device."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._cuda = [device] if device.type == "cuda" else []
        self._states: dict[str, Tensor] = {}
        self.reseed(seed)

    @contextmanager
    def active(self) -> Iterator[None]:
        """Inside, whatever draws draws from these."""
        with torch.random.fork_rng(self._cuda):
            self._set(self._states)
            yield
            self._states = self._current()

    def reseed(self, seed: int) -> None:
        """Begin anew from ``seed``."""
        with torch.random.fork_rng(self._cuda):
            torch.manual_seed(seed)
            self._states = self._current()

    def tensors(self) -> dict[str, Tensor]:
        """Their states, by name, for a checkpoint."""
        return dict(self._states)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Take the states of :meth:`tensors`; a device the checkpoint does not know keeps its
        own."""
        self._states |= {name: tensors[name] for name in self._states if name in tensors}

    def _current(self) -> dict[str, Tensor]:
        states = {"rng/cpu": torch.get_rng_state()}
        for device in self._cuda:
            states["rng/cuda"] = torch.cuda.get_rng_state(device)
        return states

    def _set(self, states: Mapping[str, Tensor]) -> None:
        torch.set_rng_state(states["rng/cpu"])
        for device in self._cuda:
            torch.cuda.set_rng_state(states["rng/cuda"], device)
