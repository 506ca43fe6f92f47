"""Takes a trainer's weights into a model that serves or answers, from a file or a process group.

1. Nothing is changed before everything was checked: a bad update leaves the old weights as they
   were.
2. A low-rank adapter is added to the weights the model was loaded with, which are kept for it:
   W = W0 + scale B A, however many adapters came before. Once full weights have replaced W0, an
   adapter is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
from torch import Tensor

from axisrl.errors import WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.ops.low_rank import factor_names, merged, weight_name
from axisrl.ops.weights_file import Described, described, listing
from axisrl.ops.weights_taken import TRANSPORTS, WeightTaker
from axisrl.types import AdapterMeta, WeightUpdate


class Received(NamedTuple):
    """What a model's weights are, beside their values."""

    adapted: tuple[str, ...]
    """Names of the weights that an adapter changed."""
    replaced: bool
    """Full weights came, so that what it was loaded with is gone."""


class WeightReceiver:
    """The weights of one loaded ``model``."""

    def __init__(self, model: Any) -> None:
        self._parameters: dict[str, Tensor] = dict(model.named_parameters())
        self._taker = WeightTaker("local")
        self._originals: dict[str, Tensor] = {}
        self._replaced = False

    def load(self, update: WeightUpdate) -> str:
        """Take the update's tensors and return the checksum of what was taken: of all weights the
        model now holds, or of the adapter they now include.

        A tied weight is expected once, under the name ``named_parameters()`` gives it. Raises
        ``WeightSyncError`` naming the tensors that are missing, unexpected or of another shape or
        dtype, and when the file cannot be read.
        """
        if update.transport not in TRANSPORTS:
            raise WeightSyncError(
                f"the local plugin cannot receive weights by {update.transport!r}",
                fix=f"let the trainer send by one of {', '.join(TRANSPORTS)}",
            )
        if update.adapter is not None:
            return self._load_adapter(update, update.adapter)
        expected = {name: described(value) for name, value in self._parameters.items()}
        tensors = self._taker.take(update, self._device, expected)
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(tensors[name])
        self._replaced = True
        self._originals.clear()
        return weights_checksum(self._parameters)

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor held beside the model's, with a name of its own."""
        for name, value in self._originals.items():
            yield f"original/{name}", value

    @property
    def received(self) -> Received:
        """For a checkpoint of the model."""
        return Received(tuple(self._originals), self._replaced)

    def expect(self, received: Received) -> None:
        """To be called before a checkpoint's weights take the place of the model's: keeps what the
        next adapter is added to. Raises ``KeyError`` for a weight the model lacks."""
        self._replaced |= received.replaced
        if not self._replaced:
            for name in received.adapted:
                self._original(name)

    def _load_adapter(self, update: WeightUpdate, adapter: AdapterMeta) -> str:
        if self._replaced:
            raise WeightSyncError(
                f"weight update {update.version} is an adapter on weights that full weights have "
                "replaced",
                fix="let the trainer offer merged weights: lora.update merged",
            )
        tensors = self._taker.take(update, self._device, self._expected(update, adapter))
        tensors = {name: value.to(self._device) for name, value in tensors.items()}
        wanted = {weight_name(module) for module in adapter.targets}
        with torch.no_grad():
            for name in self._originals.keys() - wanted:
                self._parameters[name].copy_(self._originals.pop(name))
            for module in adapter.targets:
                a, b = (tensors[name] for name in factor_names(module))
                name = weight_name(module)
                changed = merged(self._original(name), a, b, adapter.scale)
                self._parameters[name].copy_(changed)
        return weights_checksum(tensors)

    @property
    def _device(self) -> torch.device:
        return next(iter(self._parameters.values())).device

    def _expected(self, update: WeightUpdate, adapter: AdapterMeta) -> dict[str, Described]:
        """What an adapter's tensors must look like to fit the model."""
        known = {name for name, value in self._parameters.items() if value.ndim == 2}
        modules = [module for module in adapter.targets if weight_name(module) not in known]
        if modules:
            raise WeightSyncError(
                f"weight update {update.version} {listing('adapts unknown modules:', modules)}",
                fix="engine and trainer must load the same model",
            )
        expected: dict[str, Described] = {}
        for module in adapter.targets:
            weight = self._parameters[weight_name(module)]
            (rows, columns), dtype = weight.shape, str(weight.dtype)
            a, b = factor_names(module)
            expected[a] = ((adapter.rank, columns), dtype)
            expected[b] = ((rows, adapter.rank), dtype)
        return expected

    def _original(self, name: str) -> Tensor:
        """The weight as it was loaded; kept from the first call on."""
        if name not in self._originals:
            self._originals[name] = self._parameters[name].detach().clone()
        return self._originals[name]


def model_tensors(model: Any, receiver: WeightReceiver | None) -> Iterator[tuple[str, Tensor]]:
    """What a model takes: its weights and buffers, and what is kept of those it was loaded with."""
    yield from model.named_parameters()
    yield from model.named_buffers()
    if receiver is not None:
        yield from receiver.tensors()
