"""Takes another trainer's weights into a frozen model, from one safetensors file.

Nothing is changed before everything was checked. Adapters are refused: it keeps no weights to add
them to.
"""

from __future__ import annotations

from axisrl.errors import WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.ops.weights_file import described, read_update
from axisrl.types import WeightUpdate
from axisrl_megatron.held import HeldModel

_TRANSPORTS = ("shared_memory", "disk")


def receive(model: HeldModel, update: WeightUpdate) -> str:
    """Take the update's tensors; the checksum of all weights the model then holds.

    Raises ``WeightSyncError`` naming what does not fit.
    """
    if update.transport not in _TRANSPORTS or update.adapter is not None:
        kind = "an adapter" if update.adapter else f"weights by {update.transport!r}"
        raise WeightSyncError(
            f"the Megatron trainer's frozen models cannot receive {kind}",
            fix=f"let the trainer send whole weights by one of {', '.join(_TRANSPORTS)}",
        )
    held = model.weights()
    tensors = read_update(update, {name: described(value) for name, value in held.items()})
    model.load(tensors.__getitem__)
    return weights_checksum(model.weights())
