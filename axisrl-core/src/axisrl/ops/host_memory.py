"""Moves tensors of an accelerator to host memory and back. Every reference to them stays good.

1. A tensor's storage is exchanged (``tensor.data``), not the tensor: an optimizer keeps its state,
   tied weights stay tied, hooks stay registered.
2. Host copies are page-locked, and kept for the next time: locking takes longer than copying.
3. A tensor that is in host memory stays there: on a CPU nothing moves and nothing is freed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import torch
from torch import Tensor

from axisrl.errors import RunFailed
from axisrl.protocols import TrainerPart

Named = Callable[[], Iterable[tuple[str, Tensor]]]


class HostMemory:
    """Where the tensors of ``named`` go. It is asked anew each time: optimizers make tensors as
    they work, each under a name of its own."""

    def __init__(self, device: torch.device, named: Named) -> None:
        self._device = device
        self._named = named
        self._copies: dict[str, Tensor] = {}

    def offload(self) -> None:
        """Move what is on the device, and free it there for other processes."""
        for name, tensor in self._named():
            if tensor.is_cuda:
                copy = self._copy_of(name, tensor)
                copy.copy_(tensor.detach(), non_blocking=True)
                tensor.data = copy
        free_cache(self._device)

    def reload(self) -> None:
        """Move what is not on the device."""
        for _, tensor in self._named():
            if tensor.device != self._device:
                tensor.data = tensor.detach().to(self._device, non_blocking=True)

    def _copy_of(self, name: str, tensor: Tensor) -> Tensor:
        if name not in self._copies:
            self._copies[name] = torch.empty_like(
                tensor, device="cpu", pin_memory=True, requires_grad=False
            )
        return self._copies[name]


class TrainerMemory:
    """The parts of a trainer that can be in host memory, and which of them are. On a CPU nothing is
    freed."""

    def __init__(self, name: str, parts: Mapping[TrainerPart, HostMemory]) -> None:
        """``name`` is the model's, for errors."""
        self._name = name
        self._parts = parts
        self._away: set[TrainerPart] = set()

    def offload(self, parts: Collection[TrainerPart]) -> None:
        """Move these off the device; those that are not there at all are passed over."""
        for part in self._parts.keys() & parts:
            self._away.add(part)
            self._parts[part].offload()

    def reload(self, parts: Collection[TrainerPart]) -> None:
        """Move these back."""
        for part in self._parts.keys() & parts:
            self._parts[part].reload()
            self._away.discard(part)

    def require(self, *parts: TrainerPart) -> None:
        """Raise ``RunFailed`` unless these are on the device."""
        if missing := self._away & set(parts):
            raise RunFailed(
                f"{' and '.join(sorted(missing))} of {self._name!r} were moved off the device",
                fix="call reload first",
            )


def free_cache(device: torch.device) -> None:
    """Wait for copies that are under way, and let other processes have what is free."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
