"""A run without faults, then one with faults for each seed, several at once if asked, each judged.

A run with faults may take so many times what it should (``_SLACK``): the run without them, and for
each fault a new start and the updates that are taken again. What takes longer is hung.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from axisrl.chaos.plan import Chaos, Phase, draw_faults, phases_of
from axisrl.chaos.runner import Command, Runner
from axisrl.chaos.verdict import Case, Facts, Verdict, judge
from axisrl.errors import RunFailed, UsageError
from axisrl.runfolder import RunFolder
from axisrl.runtime.faults import read_ledger

_SLACK = 3.0
_FAULT_S = 10.0
"""To see that a process is gone, and to wait for what it held."""
_NO_LIMIT_S = 24 * 3600.0


class Baseline(NamedTuple):
    """A run without faults."""

    run_dir: Path
    seconds: float
    phases: Sequence[Phase]


@dataclass(frozen=True, slots=True, kw_only=True)
class Campaign:
    """What is run, how it is hit, and where everything is kept."""

    command: Command
    chaos: Chaos
    facts: Facts
    folder: Path
    redo: int
    """Updates that are taken again when a run goes back to its newest checkpoint."""

    def play_baseline(self) -> Baseline:
        """Run once without faults. Raises ``RunFailed`` when that does not end well."""
        run_dir = self.folder / "baseline"
        ending = Runner(self.command, run_dir).run(_NO_LIMIT_S)
        if not ending.completed:
            raise RunFailed(
                f"the run without faults did not complete: {ending.error}",
                fix="mend that first; chaos says nothing about a run that fails by itself",
            )
        return Baseline(run_dir, ending.seconds, phases_of(run_dir))

    def bound(self, baseline: Baseline, crowd: float = 1.0) -> float:
        """Seconds after which a run with faults counts as hung; ``crowd`` is how many runs share
        what the one without faults had alone."""
        first, last = baseline.phases[0], max(p.began + p.seconds for p in baseline.phases)
        working = last - first.began
        step, faults = working / self.chaos.updates, -(-self.chaos.updates // self.chaos.every)
        each = max(baseline.seconds - working, 0.0) + self.redo * step + _FAULT_S
        return _SLACK * max(crowd, 1.0) * (baseline.seconds + faults * each)

    def play(self, baseline: Baseline, seed: int, limit_s: float, *, keep: bool) -> Verdict:
        """One run with the faults of ``seed``; a good one's folder is removed unless ``keep``."""
        run_dir = self.folder / f"seed-{seed:04d}"
        plan = draw_faults(baseline.phases, self.chaos, seed)
        runner = Runner(self.command, run_dir, plan)
        ending = runner.run(limit_s)
        verdict = judge(
            Case(
                seed=seed,
                run_dir=run_dir,
                baseline=baseline.run_dir,
                plan=plan,
                ledger=read_ledger(runner.ledger),
                ending=ending,
                baseline_s=baseline.seconds,
            ),
            self.facts,
        )
        if verdict.good and not keep:
            shutil.rmtree(run_dir)
        return verdict

    def play_all(
        self,
        seeds: Sequence[int],
        one: Callable[[int], Verdict],
        parallel: int,
        tell: Callable[[Verdict], None],
    ) -> None:
        """``one(seed)`` for every seed, ``parallel`` at once; ``tell`` hears of each as it ends."""
        with ThreadPoolExecutor(parallel) as pool:
            running = [pool.submit(one, seed) for seed in seeds]
            try:
                for done in as_completed(running):
                    tell(done.result())
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise


def known_baseline(run_dir: Path, tree: dict[str, Any], stored: dict[str, Any]) -> Baseline:
    """A run that was made before, with the same settings. Raises ``UsageError`` when it cannot
    serve."""
    run = RunFolder(run_dir)
    if run.state != "completed" or run.manifest.get("resumed"):
        raise UsageError(
            f"--baseline {run_dir} is no run that completed without a stop",
            fix="leave it out: chaos then runs one",
        )
    other = sorted(k for k in tree.keys() | stored.keys() if tree.get(k) != stored.get(k))
    if unlike := [key for key in other if key != "name"]:
        raise UsageError(
            f"--baseline {run_dir} was run with other settings: {', '.join(unlike)}",
            fix="give chaos the same ones, or leave --baseline out",
        )
    manifest = run.manifest
    return Baseline(run_dir, manifest["updated"] - manifest["created"], phases_of(run_dir))
