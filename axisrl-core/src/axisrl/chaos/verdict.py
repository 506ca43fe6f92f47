"""What became of a run whose parts were killed, read from its folder and that of a run without
faults.

- **lost**: rollouts that were started and are neither recorded nor still open, and those that ended
  as a failure of the machinery although nothing failed in the run without faults.
- **doubled**: rollouts that were trained or recorded twice, and steps that were logged twice.
- **healed**: faults after which the run went on, that is all of them when it completed.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from axisrl.chaos.compare import differences
from axisrl.chaos.plan import TARGETS
from axisrl.chaos.runner import Ending
from axisrl.runfolder import RunFolder, read_jsonl
from axisrl.runtime.faults import Fault, LedgerEntry

_NAMES = {role: name for name, role in TARGETS.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the configuration says that a verdict needs."""

    group_size: int
    exact: bool
    """The schedule is synchronous: a healed run is the run without faults, bit for bit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One run, judged."""

    seed: int
    planned: int
    injected: Mapping[str, int]
    """Target -> faults that hit one."""
    missed: int
    """Faults that found nobody to hit, because it was gone already."""
    healed: int
    lost: int
    doubled: int
    hung: bool
    error: str
    starts: int
    seconds: float
    ratio: float
    """To the run without faults."""
    reward: float | None
    baseline_reward: float | None
    differences: Sequence[str] | None = None
    """From the run without faults; None where that could not be told, or need not be: the schedule
    is not synchronous."""

    @property
    def reward_change(self) -> float | None:
        """Beside the run without faults."""
        if self.reward is None or self.baseline_reward is None:
            return None
        return self.reward - self.baseline_reward

    @property
    def good(self) -> bool:
        """Nothing lost, doubled or hung, and everything healed."""
        return not self.reasons

    @property
    def reasons(self) -> list[str]:
        """Why it is not good."""
        injected = sum(self.injected.values())
        unreached = self.planned - injected - self.missed
        told = {
            "hung": self.hung,
            f"ended: {self.error}": bool(self.error),
            f"{injected - self.healed} not healed": injected != self.healed,
            f"faults not reached: {unreached}": bool(unreached) and not self.error,
            f"{self.lost} rollouts lost": bool(self.lost),
            f"{self.doubled} doubled": bool(self.doubled),
            f"not the same run: {'; '.join((self.differences or ())[:5])}": bool(self.differences),
        }
        return [reason for reason, holds in told.items() if holds]

    def to_dict(self) -> dict[str, Any]:
        """JSON."""
        return {**asdict(self), "good": self.good, "reasons": self.reasons}


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A run that is over, and the one to compare it with."""

    seed: int
    run_dir: Path
    baseline: Path
    plan: Sequence[Fault]
    ledger: Sequence[LedgerEntry]
    ending: Ending
    baseline_s: float


def judge(case: Case, facts: Facts) -> Verdict:
    """The verdict on a run."""
    run, baseline, ending = RunFolder(case.run_dir), RunFolder(case.baseline), case.ending
    hits = [entry for entry in case.ledger if entry.victim]
    differ = ending.completed and facts.exact
    return Verdict(
        seed=case.seed,
        planned=len(case.plan),
        injected=dict(sorted(Counter(_NAMES[hit.fault.target] for hit in hits).items())),
        missed=len(case.ledger) - len(hits),
        healed=_healed(hits, run, ending),
        lost=lost_rollouts(run, baseline, facts.group_size) if ending.completed else 0,
        doubled=doubled(run),
        hung=ending.hung,
        error=ending.error,
        starts=ending.starts,
        seconds=ending.seconds,
        ratio=ending.seconds / case.baseline_s,
        reward=run.last_reward,
        baseline_reward=baseline.last_reward,
        differences=differences(case.run_dir, case.baseline) if differ else None,
    )


def _healed(hits: Sequence[LedgerEntry], run: RunFolder, ending: Ending) -> int:
    if ending.completed:
        return len(hits)
    last = run.last_metrics.get("step", -1)
    return sum(hit.fault.step < last for hit in hits)


def lost_rollouts(run: RunFolder, baseline: RunFolder, group_size: int) -> int:
    """Of a run that is over: started = recorded + open, and nothing failed that need not have."""
    rows, before = _rows(run), _rows(baseline)
    source = _source(run)
    still_open = {number for number, _ in source.get("open", ())}
    closed = [group for group in range(source.get("cursor", 0)) if group not in still_open]
    recorded = {(row["group"], row["member"]) for _, row, _ in rows}
    missing = sum(
        (group, member) not in recorded for group in closed for member in range(group_size)
    )
    failed_before = {row["id"] for _, row, _ in before if row["reward"] is None}
    failed = {row["id"] for _, row, _ in rows if row["reward"] is None}
    return missing + len(failed - failed_before)


def doubled(run: RunFolder) -> int:
    """Rollouts trained or recorded more than once, and steps logged more than once."""
    rows = _rows(run)
    trained = Counter(row["id"] for _, row, is_trained in rows if is_trained)
    recorded = Counter(row["id"] for _, row, _ in rows)
    logged = Counter(line["step"] for line in read_jsonl(run.path / "metrics.jsonl"))
    again = {id for counts in (trained, recorded) for id, count in counts.items() if count > 1}
    return len(again) + sum(count - 1 for count in logged.values())


def _rows(run: RunFolder) -> list[tuple[int, dict[str, Any], bool]]:
    """Every training rollout on disk: step, summary, whether it was trained."""
    return [
        (step, row["summary"], row["advantage"] is not None)
        for step in run.rollout_steps("step")
        for row in run.rollouts("step", step)
    ]


def _source(run: RunFolder) -> dict[str, Any]:
    """Where the newest checkpoint's tasks go on."""
    newest = run.newest_checkpoint
    if newest is None:
        raise ValueError(f"{run.path} completed without a checkpoint")
    return dict(json.loads((newest / "state.json").read_text())["source"])
