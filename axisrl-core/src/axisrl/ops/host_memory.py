"""Moves tensors of an accelerator to host memory and back. Every reference to them stays good.

1. A tensor's storage is exchanged (``tensor.data``), not the tensor: an optimizer keeps its state,
   tied weights stay tied, hooks stay registered.
2. Host copies are page-locked, and kept for the next time: locking takes longer than copying.
3. A tensor that is in host memory stays there: on a CPU nothing moves and nothing is freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

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


def free_cache(device: torch.device) -> None:
    """Wait for copies that are under way, and let other processes have what is free."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.empty_cache()
