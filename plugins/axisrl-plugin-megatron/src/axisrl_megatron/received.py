"""Takes another trainer's weights into a frozen model.

Nothing is changed before everything was checked. Adapters are refused: it keeps no weights to add
them to.
"""

from __future__ import annotations

from axisrl.errors import WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.ops.weights_file import described
from axisrl.ops.weights_taken import TRANSPORTS, WeightTaker
from axisrl.types import WeightUpdate
from axisrl_megatron.held import HeldModel


class FrozenReceiver:
    """The weights of one frozen ``model``."""

    def __init__(self, model: HeldModel) -> None:
        self._model = model
        self._taker = WeightTaker("megatron")

    def load(self, update: WeightUpdate) -> str:
        """Take the update's tensors; the checksum of all weights the model then holds.

        Raises ``WeightSyncError`` naming what does not fit.
        """
        if update.transport not in TRANSPORTS or update.adapter is not None:
            kind = "an adapter" if update.adapter else f"weights by {update.transport!r}"
            raise WeightSyncError(
                f"the Megatron trainer's frozen models cannot receive {kind}",
                fix=f"let the trainer send whole weights by one of {', '.join(TRANSPORTS)}",
            )
        held = self._model.weights()
        expected = {name: described(value) for name, value in held.items()}
        tensors = self._taker.take(update, self._model.device, expected)
        self._model.load(tensors.__getitem__)
        return weights_checksum(self._model.weights())
