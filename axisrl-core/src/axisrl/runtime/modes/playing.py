"""``mode: rollout``: plays what training would learn from, with the weights that are there, and
writes it down. No model is trained and no advantage computed.

The tasks, seeds and files are those of ``mode: train`` before its first update:
``rollouts/step-000003.jsonl`` is what the third update would learn from. The state is saved after
every window, so a resumed run goes on with the next one.
"""

from __future__ import annotations

import asyncio
import dataclasses

from axisrl.runtime.collect import Window
from axisrl.runtime.interrupt import Interrupted, unless_interrupted
from axisrl.runtime.parts import RunParts


class RolloutLoop:
    """A :class:`axisrl.runtime.modes.RunLoop`."""

    def __init__(self, parts: RunParts, interrupt: asyncio.Event) -> None:
        self.parts = parts
        self.interrupt = interrupt
        self.inside_window = False
        self._played = 0

    async def run(self) -> None:
        """``train.updates`` updates' worth of windows."""
        parts = self.parts
        while parts.state.step < parts.config.train.updates:
            if self.interrupt.is_set():
                raise Interrupted
            with parts.spans.span("rollout", step=parts.state.step + 1):
                window = await unless_interrupted(self.interrupt, parts.source.collect())
            self.inside_window = True
            await self._write(window)
            self.inside_window = False
            await parts.save()

    def report(self) -> list[str]:
        """Where the rollouts are, and how they are learnt from."""
        folder = self.parts.run_dir
        return [
            f"{self._played} rollouts in {folder / 'rollouts'}",
            f"learn from them: mode=train_offline offline.rollouts={folder}",
        ]

    async def _write(self, window: Window) -> None:
        parts, step = self.parts, self.parts.state.step
        metrics = parts.measure(window)
        tokens = parts.state.tokens + sum(one.sampled_tokens for one in window.played)
        for groups in window.split(parts.config.train.updates_per_sync):
            step += 1
            await parts.record(step, window, groups, {})
            parts.loggers.scalars(step, metrics.flush())
        self._played += len(window.played)
        parts.state = dataclasses.replace(
            parts.state, step=step, tokens=tokens, source=parts.source.state_dict(), pending=None
        )
