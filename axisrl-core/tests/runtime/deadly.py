"""A local plugin (``--plugin deadly.py``): a store that is a rollout worker's end."""

import os
import signal

from axisrl.builtin.shm_handles import SharedMemoryHandleStore
from axisrl.plugins import HandleStoreComponent, hookimpl


@hookimpl
def axisrl_handle_stores():
    return [
        HandleStoreComponent(
            name="store",
            target=f"{__name__}:Deadly",
            config="axisrl.builtin.config:SharedMemoryConfig",
            reach="machine",
        )
    ]


class Deadly(SharedMemoryHandleStore):
    """``core/shm``, but a worker dies of the first array it keeps, the next one of its second."""

    def __init__(self, config, context):
        super().__init__(config, context)
        self._marks = context.run_dir / "marks"
        self._marks.mkdir(exist_ok=True, parents=True)

    async def put(self, payload, *, owner, ttl_s=None):
        handle = await super().put(payload, owner=owner, ttl_s=ttl_s)
        if owner.startswith("rollout"):
            number = len(list(self._marks.iterdir()))
            (self._marks / f"{number}").touch()
            if number in (0, 2):
                os.kill(os.getpid(), signal.SIGKILL)
        return handle
