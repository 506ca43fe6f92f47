"""``core/wandb``: the run on Weights & Biases. Only the driver talks to it.

1. One commit a step. W&B's own steps are the run's steps, and they only rise: a resumed run keeps
   the run id of its checkpoint and leaves out the steps that W&B already has. (Those come again
   when a run died after its checkpoint; exact resume makes them equal.) Offline, each start writes
   a folder of its own with the same id; ``wandb sync`` joins them.
2. What was handed to W&B is noted in ``wandb/committed.json`` of the run folder.
3. Samples go as an incremental table with few rows and short cells. All W&B calls after the start
   happen in a background thread; while it is behind, samples are left out and counted.

It reads no environment: the API key comes from the context's service ``environ`` under the name
that ``api_key_env`` gives, else from wherever W&B itself looks. A killed offline run may lose what
W&B had not yet flushed, about a second; ``metrics.jsonl`` does not.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from axisrl.builtin import samples
from axisrl.builtin.background import Background
from axisrl.builtin.config import WandbConfig
from axisrl.errors import EnvironmentProblem
from axisrl.plugins.events import RunInfo
from axisrl.types import BuildContext, RolloutRow

FOLDER = "wandb"
_COLUMNS = ("step", "task", "member", "outcome", "reward", "prompt", "completion")
_MAX_WAITING = 8
"""Calls the background thread may be behind before samples are left out."""
_DEFAULT_KEY = "WANDB_API_KEY"


class WandbLogger:
    """See the module's docstring."""

    def __init__(self, config: WandbConfig, context: BuildContext) -> None:
        self._config = config
        self._log = context.logger
        self._environ: Mapping[str, str] = context.services.get("environ", {})
        self._id = ""
        self._run: Any = None
        self._table: Any = None
        self._pending: dict[str, Any] = {}
        self._left_out = 0
        self._notes = Path()
        self._committed = -1
        self._worker: Background | None = None

    def start(self, run: RunInfo, resume: Mapping[str, Any] | None) -> None:
        """Open the W&B run, or continue the one of the checkpoint."""
        self._id = (resume or {}).get("id") or uuid.uuid4().hex[:12]
        if self._config.mode == "disabled":
            return
        import wandb

        folder = run.run_dir / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        self._notes = folder / "committed.json"
        self._run = wandb.init(
            project=self._config.project,
            entity=self._config.entity or None,
            name=run.name,
            id=self._id,
            resume="allow",
            config=dict(run.config) | {"recipe": run.recipe, "seed": run.seed},
            tags=list(self._config.tags) or None,
            mode=self._config.mode,
            dir=str(run.run_dir),
            settings=self._settings(wandb),
        )
        self._committed = max(_noted(self._notes, self._id), int(self._run.step) - 1)
        self._table = wandb.Table(columns=list(_COLUMNS), log_mode="INCREMENTAL")
        self._worker = Background("axisrl-wandb")
        where = self._run.url if self._config.mode == "online" else self._run.dir
        self._log.info("W&B run %s", where)
        if run.resumed_from is not None and self._committed > run.resumed_from:
            self._log.info("W&B already has the steps up to %d; it goes on there", self._committed)

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Commit the step, with samples that came before it."""
        if self._worker is None or step <= self._committed:
            return
        self._committed = step
        self._worker.submit(partial(self._commit, step, dict(values)))

    def rollouts(self, step: int, rows: Sequence[RolloutRow]) -> None:
        """Queue samples for the step's commit, when it is their turn."""
        count, worker = self._config.table_rows, self._worker
        if worker is None or step <= self._committed:
            return
        if not count or not samples.due(step, self._config.table_every):
            return
        if worker.waiting > _MAX_WAITING:
            self._left_out += 1
            return
        worker.submit(
            partial(self._add_rows, [self._cells(row) for row in samples.pick(rows, count)])
        )

    def state_dict(self) -> dict[str, Any]:
        """The run id. Waits, at most ``drain_timeout_s``, until the steps so far are handed over,
        so that a resume from this checkpoint lacks none."""
        if self._worker is not None and not self._worker.drain(self._config.drain_timeout_s):
            self._log.warning("W&B is behind by %d calls", self._worker.waiting)
        return {"id": self._id}

    def finish(self, outcome: str) -> None:
        """Close the W&B run. Raises ``TimeoutError`` when it is not through in time."""
        if self._worker is None:
            return
        worker, self._worker = self._worker, None
        if self._left_out:
            self._log.warning("W&B was behind: samples of %d steps left out", self._left_out)
        exit_code = 0 if outcome == "completed" else 1
        try:
            worker.submit(partial(self._run.finish, exit_code=exit_code))
        finally:
            ended = worker.stop(self._config.drain_timeout_s)
        if not ended:
            raise TimeoutError(f"W&B has not ended in {self._config.drain_timeout_s} s")

    def _settings(self, wandb: Any) -> Any:
        known = wandb.Settings.model_fields
        options: dict[str, Any] = {"console": "off", "silent": True, "save_code": False}
        if "x_transaction_log_flush_interval" in known:
            options["x_transaction_log_flush_interval"] = 1.0
        key = self._api_key()
        return wandb.Settings(**options, **({"api_key": key} if key else {}))

    def _api_key(self) -> str | None:
        name = self._config.api_key_env
        key = self._environ.get(name)
        if key is None and name != _DEFAULT_KEY and self._config.mode == "online":
            raise EnvironmentProblem(
                f"W&B needs the environment variable {name}, which is not set",
                fix=f"set {name}, or use `mode: offline`",
            )
        return key

    def _cells(self, row: RolloutRow) -> list[Any]:
        one, limit = row.summary, self._config.table_chars
        said = (samples.prompt(row), samples.completion(row))
        texts = [samples.shown(text, limit) for text in said]
        return [row.step, one.task_id, one.member, str(one.outcome), one.reward, *texts]

    def _add_rows(self, rows: Sequence[Sequence[Any]]) -> None:
        for row in rows:
            self._table.add_data(*row)
        self._pending["rollout/samples"] = self._table

    def _commit(self, step: int, values: dict[str, Any]) -> None:
        pending, self._pending = self._pending, {}
        self._run.log(values | pending, step=step, commit=True)
        draft = self._notes.with_suffix(".part")
        draft.write_text(json.dumps({"id": self._id, "step": step}), encoding="utf-8")
        draft.replace(self._notes)


def _noted(path: Path, run_id: str) -> int:
    """The last step this W&B run was given, as noted by an earlier process; -1 for none."""
    try:
        note = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return -1
    return int(note["step"]) if note.get("id") == run_id else -1
