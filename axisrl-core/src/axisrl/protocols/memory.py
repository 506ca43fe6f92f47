"""Memory hand-over: engines and trainers that share an accelerator take turns with its memory.

1. What is off the accelerator is kept, in the memory of the machine: after ``reload`` a component
   computes, bit for bit, what it would have computed without ``offload``.
2. The memory is free for other processes afterwards, not held back in a cache of this one.
3. Both calls are idempotent, take parts in any order, and pass over what a component does not have
   (a frozen model's optimizer).

Who has the memory when is the core's business (:mod:`axisrl.runtime.memory`): rollout, then the
models that score and learn one after another, then weight sync, for which engine and policy have
their weights alone.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal, Protocol, runtime_checkable

from axisrl.protocols.engine import RolloutEngine
from axisrl.protocols.trainer import TrainerBackend

EnginePart = Literal["weights", "kv_cache"]
"""``kv_cache``: everything that requests need beside the weights."""
TrainerPart = Literal["weights", "optimizer"]
"""``optimizer``: everything that only a step needs: moments, master copies, gradients."""


@runtime_checkable
class OffloadingEngine(RolloutEngine, Protocol):
    """An engine that can hand its memory over.

    Until every part is back ``generate`` waits as while paused, and ``abort`` ends what waits.
    ``update_weights`` needs the weights alone, and without them raises ``WeightSyncError``.
    """

    async def offload(self, parts: Collection[EnginePart]) -> None:
        """Free the memory of these parts. Cached prefixes go with the ``kv_cache``.

        Refuses (``EngineFailure``) while requests run: pause and abort, or wait, first.
        """
        ...

    async def reload(self, parts: Collection[EnginePart]) -> None:
        """Undo ``offload`` for these parts."""
        ...


@runtime_checkable
class OffloadingTrainer(TrainerBackend, Protocol):
    """A trainer that can hand its memory over, as a policy, a value model or a frozen model.

    ``save``, ``load`` and ``stop`` work wherever the parts are, and leave them there. ``step``
    needs both parts and the other calls need the weights: ``RunFailed`` without.
    """

    def offload(self, parts: Collection[TrainerPart]) -> None:
        """Free the memory of these parts. What the newest ``weight_update`` holds there goes with
        the weights: by then receivers have read it."""
        ...

    def reload(self, parts: Collection[TrainerPart]) -> None:
        """Undo ``offload`` for these parts."""
        ...
