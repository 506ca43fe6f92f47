"""``core/console``: what a person watching a run wants to see.

In a terminal: a live view with the step bar and its ETA, the phase, what waits for what (queues,
ages of tokens, idle shares; where the run measures them), the last rewards and the core metrics.
Elsewhere, or with ``plain``: one line a step. In both, sample rollouts every so many steps. All
metrics are in metrics.jsonl; this shows a choice. Colour is rich's business, NO_COLOR included.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from axisrl.builtin import samples
from axisrl.builtin.config import ConsoleConfig
from axisrl.plugins.events import RunInfo
from axisrl.types import BuildContext, RolloutRow

_BLOCKS = "▁▂▃▄▅▆▇█"


@dataclass
class _Progress:
    """Where the run is. Replaced piece by piece by the run, read by the live view's thread."""

    first: int = 0
    step: int = 0
    total: int = 0
    began: float = 0.0
    paced: float = 0.0
    """When the first step of this process began: evaluation before it says nothing of a step."""
    phase: str = "starting"
    done: int = 0
    parts: int = 0
    rewards: tuple[float, ...] = ()
    values: Mapping[str, float] = field(default_factory=dict)


class ConsoleLogger:
    """Writes to stdout, or to the rich console that the context has as service ``console``."""

    def __init__(self, config: ConsoleConfig, context: BuildContext) -> None:
        self._config = config
        self._clock = context.clock
        self._console: Console = context.services.get("console") or Console()
        self._at = _Progress()
        self._live: Live | None = None

    def start(self, run: RunInfo, resume: Mapping[str, Any] | None) -> None:
        """Say which run this is and open the live view where there is a terminal."""
        first = run.resumed_from or 0
        stepless = run.config.get("mode") in ("eval", "mismatch")
        total = 0 if stepless else run.config.get("train", {}).get("updates", 0)
        now = self._clock()
        self._at = _Progress(first=first, step=first, total=total, began=now, paced=now)
        again = "" if run.resumed_from is None else f", resumed after step {first}"
        self._say(f"run {run.name} of {run.recipe or 'a config'} in {run.run_dir}{again}")
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            if self._config.plain:
                return
            self._live = Live(
                get_renderable=self._view, console=self._console, refresh_per_second=4
            )
            self._live.start()

    def progress(self, phase: str, done: int, total: int) -> None:
        """What happens until the next step; shown in the live view."""
        self._at.phase, self._at.done, self._at.parts = phase, done, total

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """The step's line, or its place in the live view."""
        at = self._at
        at.step = step
        if step == at.first:
            at.paced = self._clock()
        # Evaluation comes in some steps only; its last value stays in view.
        at.values = {**at.values, **values}
        if "reward/mean" in values:
            at.rewards = (*at.rewards, values["reward/mean"])[-30:]
        if self._live is None:
            self._say(self._line(values))

    def rollouts(self, step: int, rows: Sequence[RolloutRow]) -> None:
        """Sample rollouts, when it is their turn."""
        if self._config.show_samples and samples.due(step, self._config.samples_every):
            for row in samples.pick(rows, self._config.show_samples):
                self._console.print(self._sample(row))

    def state_dict(self) -> dict[str, Any]:
        """Nothing."""
        return {}

    def finish(self, outcome: str) -> None:
        """Close the live view, leaving its last state on the screen."""
        if self._live is not None:
            self._live.stop()
            self._live = None
        spent = _duration(self._clock() - self._at.began)
        self._say(f"run {outcome} at step {self._of_total()} after {spent}")

    def _say(self, line: str) -> None:
        self._console.print(Text(line), soft_wrap=True)

    def _of_total(self) -> str:
        return f"{self._at.step}/{self._at.total}" if self._at.total else str(self._at.step)

    def _line(self, values: Mapping[str, float]) -> str:
        chosen = [f"{name} {value:.4g}" for name, value in self._chosen(values)]
        eta = self._eta()
        ending = [] if eta is None else [f"eta {_duration(eta)}"]
        return "  ".join([f"step {self._of_total()}", *chosen, *ending])

    def _chosen(self, values: Mapping[str, float]) -> list[tuple[str, float]]:
        names: dict[str, None] = {}
        for pattern in self._config.metrics:
            names |= dict.fromkeys(sorted(fnmatch.filter(values, pattern)))
        return [(name, values[name]) for name in names]

    def _eta(self) -> float | None:
        at = self._at
        done = at.step - at.first
        if done <= 0 or at.step >= at.total:
            return None
        return (self._clock() - at.paced) / done * (at.total - at.step)

    def _view(self) -> RenderableType:
        return Group(self._bar(), self._phase(), *self._flow(), self._rewards(), self._table())

    def _bar(self) -> RenderableType:
        at, eta = self._at, self._eta()
        left = "" if eta is None else f"  eta {_duration(eta)}"
        times = Text(f"elapsed {_duration(self._clock() - at.began)}{left}")
        row = Table.grid(padding=(0, 2))
        row.add_row(
            Text(f"step {self._of_total()}", style="bold"),
            ProgressBar(total=at.total or None, completed=at.step, width=30),
            times,
        )
        return row

    def _phase(self) -> Text:
        at = self._at
        count = f" {at.done}/{at.parts}" if at.parts else ""
        return Text.assemble(("phase ", "dim"), f"{at.phase}{count}")

    def _flow(self) -> list[Text]:
        """A line each for what was measured of the last window."""
        lines = []
        for title, parts in _FLOW.items():
            found = [(name, self._at.values[key]) for key, name in parts if key in self._at.values]
            if title == "age":
                found += self._ages()
            if found:
                shown = "  ".join(f"{name} {_amount(title, value)}" for name, value in found)
                lines.append(Text.assemble((f"{title} ", "dim"), shown))
        return lines

    def _ages(self) -> list[tuple[str, float]]:
        values = self._at.values
        names = fnmatch.filter(values, "rollout/staleness_*_frac")
        names.sort(key=lambda name: (len(name), name))
        ages = [name.removeprefix("rollout/staleness_").removesuffix("_frac") for name in names]
        # The oldest are named last, whatever their name.
        pairs = sorted(zip(ages, names, strict=True), key=lambda pair: pair[0] == "older")
        return [(age.removeprefix("age_"), values[name]) for age, name in pairs]

    def _rewards(self) -> Text:
        last = self._at.rewards
        recent = " ".join(f"{value:.3g}" for value in last[-5:])
        return Text.assemble(("reward ", "dim"), (_sparkline(last), "green"), f" {recent}")

    def _table(self) -> RenderableType:
        table = Table.grid(padding=(0, 2))
        cells = [
            Text.assemble((f"{name} ", "dim"), f"{value:.4g}")
            for name, value in self._chosen(self._at.values)
            if not any(name == key for parts in _FLOW.values() for key, _ in parts)
        ]
        for start in range(0, len(cells), 3):
            table.add_row(*cells[start : start + 3])
        return table

    def _sample(self, row: RolloutRow) -> RenderableType:
        one, limit = row.summary, self._config.sample_chars
        reward = "none" if one.reward is None else f"{one.reward:.4g}"
        parts = ", ".join(f"{name} {value:.3g}" for name, value in one.parts.items())
        title = f"step {row.step}  task {one.task_id}  reward {reward}"
        ending = f"{one.outcome}, {one.sampled_tokens} tokens"
        body = Text()
        for message in row.messages:
            body.append(f"{message.role}: ", style="bold")
            body.append(samples.shown(message.content, limit).strip() + "\n")
        body.rstrip()
        return Panel(
            body,
            title=Text(samples.shown(title, 200)),
            subtitle=Text(samples.shown(f"{ending}; {parts}" if parts else ending, 300)),
            title_align="left",
            subtitle_align="left",
        )


_FLOW = {
    "groups": (("rollout/queue_open", "played"), ("rollout/queue_home", "waiting")),
    "waits": (("time/trainer_wait_frac", "trainer"), ("time/engine_idle_frac", "engines")),
    "age": (),
}
"""Lines of the live view: the metrics of each and what they are called there."""


def _amount(title: str, value: float) -> str:
    return f"{value:g}" if title == "groups" else f"{value:.0%}"


def _sparkline(values: Sequence[float]) -> str:
    finite = [value for value in values if value == value and abs(value) != float("inf")]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(_BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(_BLOCKS[round((value - low) * scale)] for value in finite)


def _duration(seconds: float) -> str:
    """1:02:03 or 2:03."""
    minutes, second = divmod(max(0, round(seconds)), 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"
