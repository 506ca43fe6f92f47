"""Two processes joined by gloo that form a loss and its gradient over their share of the batches.

1. The pair is started at the first use, serves every case of a check run, and ends with it.
2. A loss is rebuilt in each process by reference: the import path of its builder, its id and its
   options, as JSON. No object is pickled.
3. Every answer has a time limit; a process that is late or gone ends the pair, and the next use
   starts another.

It does not know what the sum should be: that is :mod:`axisrl.testing.loss`'s.
"""

from __future__ import annotations

import datetime
import functools
import importlib
import json
import multiprocessing
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axisrl.errors import EnvironmentProblem
from axisrl.plugins.building import last_line
from axisrl.plugins.components import ComponentRef
from axisrl.plugins.manager import PluginManager
from axisrl.testing.cases import Case
from axisrl.testing.components import manager
from axisrl.testing.harness import CheckFailed, CheckSkipped, Subject
from axisrl.testing.loss_batches import PARAMETERS, Row, TinyPolicy, random_rows
from axisrl.types import BuildContext

RANKS = 2
_START_S = 180.0
"""Two imports of torch on a busy machine."""
_ANSWER_S = 60.0
_COLLECTIVE_S = 30.0
"""A rank that waits for the other one gives up before the caller does, and can say so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossJob:
    """A loss by reference, and how rows are dealt out. JSON."""

    builder: str
    """``"module:function"``, a :data:`axisrl.testing.harness.Builder`."""
    use: str
    options: Mapping[str, Any]
    run_dir: str
    whole_trajectories: bool
    """Rows of one trajectory stay in one batch, so on one rank."""


def job_of(subject: Subject[Any], *, whole_trajectories: bool) -> LossJob:
    """The subject's loss. Raises ``CheckSkipped`` when it cannot be named to another process."""
    case: Case = subject.case
    if case.services:
        raise CheckSkipped("the case's services cannot reach another process")
    ref = subject.ref
    return LossJob(
        builder=_import_path(subject.builder),
        use=ref.use,
        options=dict(ref.options),
        run_dir=str(subject.work_dir),
        whole_trajectories=whole_trajectories,
    )


def batches_of_ranks(*, whole_trajectories: bool) -> list[list[list[Row]]]:
    """Rank -> its micro-batches of rows. Every trajectory has two rows, and the ranks have unequal
    numbers of trained tokens."""
    pairs = [row.split() for row in random_rows(9)]
    if whole_trajectories:
        rows = [[half for pair in part for half in pair] for part in (pairs[:1], pairs[1:2])]
        return [rows, [[half for pair in pairs[2:] for half in pair]]]
    firsts, seconds = ([pair[side] for pair in pairs] for side in (0, 1))
    return [[firsts[:2], firsts[2:]], [seconds[:3], seconds[3:]]]


def sum_over_ranks(job: LossJob, limit_s: float = _ANSWER_S) -> NDArray[np.float64]:
    """(1 + parameters,): loss and gradient of a :class:`TinyPolicy`, summed over the ranks.

    Raises ``CheckFailed`` when a rank raises, dies or has not answered within ``limit_s``, and
    ``EnvironmentProblem`` when the pair cannot be started here.
    """
    pool = _pool_of(manager())
    try:
        return pool.total(job, limit_s)
    except CheckFailed:
        _pool_of.cache_clear()
        pool.close()
        raise


class RankPool:
    """The pair. It ends when it is closed, with this process, or when nothing refers to it."""

    def __init__(self) -> None:
        spawn = multiprocessing.get_context("spawn")
        self._workers = []
        self._ends: list[Connection] = []
        with tempfile.TemporaryDirectory(prefix="axisrl-ranks-") as folder:
            for rank in range(RANKS):
                ours, theirs = spawn.Pipe()
                worker = spawn.Process(target=_serve, args=(rank, folder, theirs), daemon=True)
                worker.start()
                theirs.close()
                self._workers.append(worker)
                self._ends.append(ours)
            self._await_start()

    def total(self, job: LossJob, limit_s: float) -> NDArray[np.float64]:
        """See :func:`sum_over_ranks`."""
        message = json.dumps(asdict(job) | {"path": sys.path}).encode()
        for end in self._ends:
            end.send_bytes(message)
        answers = [self._answer(rank, limit_s) for rank in range(RANKS)]
        for rank, answer in enumerate(answers):
            if answer["error"]:
                raise CheckFailed(f"two ranks: rank {rank} raised {answer['error']}")
        return np.asarray(answers[0]["sum"], np.float64)

    def close(self) -> None:
        """End both processes; idempotent."""
        for worker, end in zip(self._workers, self._ends, strict=True):
            end.close()
            worker.kill()
            worker.join()

    def _await_start(self) -> None:
        try:
            errors = [self._answer(rank, _START_S)["error"] for rank in range(RANKS)]
        except CheckFailed as failure:
            errors = [str(failure)]
        if any(errors):
            self.close()
            raise EnvironmentProblem(
                f"two processes cannot be joined by gloo here: {'; '.join(filter(None, errors))}",
                fix="check that torch.distributed works on this machine",
            )

    def _answer(self, rank: int, limit_s: float) -> dict[str, Any]:
        end = self._ends[rank]
        if not end.poll(limit_s):
            raise CheckFailed(
                f"two ranks: rank {rank} has not answered after {limit_s:g} s; does the loss wait "
                "for another process?"
            )
        try:
            answer: dict[str, Any] = json.loads(end.recv_bytes())
        except EOFError:
            raise CheckFailed(f"two ranks: the process of rank {rank} died") from None
        return answer


@functools.lru_cache(maxsize=1)
def _pool_of(run: PluginManager) -> RankPool:
    """One pair a check run: a new manager (:func:`axisrl.testing.components.manager`) is a new
    run."""
    return RankPool()


def _import_path(builder: Any) -> str:
    module, name = getattr(builder, "__module__", ""), getattr(builder, "__qualname__", "")
    try:
        found: Any = importlib.import_module(module) if module else None
    except ImportError:
        found = None
    if not name.isidentifier() or getattr(found, name, None) is not builder:
        raise CheckSkipped("it was made here and cannot be rebuilt in another process")
    return f"{module}:{name}"


def _serve(rank: int, folder: str, end: Connection) -> None:
    """A process of the pair: answers jobs until the other end of the pipe is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the caller decides when the pair ends
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # gloo prints as it connects
    _send(end, error=_join(rank, folder))
    while True:
        try:
            job = json.loads(end.recv_bytes())
        except (EOFError, OSError):
            return
        _send(end, **_answered(rank, job))


def _join(rank: int, folder: str) -> str:
    try:
        import torch
        from torch import distributed

        torch.set_num_threads(1)
        distributed.init_process_group(
            "gloo",
            init_method=(Path(folder) / "ranks").as_uri(),
            rank=rank,
            world_size=RANKS,
            timeout=datetime.timedelta(seconds=_COLLECTIVE_S),
        )
    except Exception as problem:  # noqa: BLE001 - whatever it is, the caller must hear it
        return last_line(problem)
    return ""


def _parts(rank: int, job: Mapping[str, Any]) -> tuple[str, NDArray[np.float64]]:
    """This rank's loss and gradient; zeros and what was raised when they cannot be formed, so that
    the other rank does not wait for them."""
    try:
        sys.path[:] = job["path"]
        module, _, name = job["builder"].partition(":")
        builder = getattr(importlib.import_module(module), name)
        ref = ComponentRef(kind="loss", use=job["use"], options=dict(job["options"]))
        loss = builder(ref, BuildContext(run_dir=Path(job["run_dir"])))
        batches = batches_of_ranks(whole_trajectories=job["whole_trajectories"])[rank]
        policy = TinyPolicy()
        return "", np.array([policy.value(loss, batches), *policy.gradient(loss, batches)])
    except Exception as problem:  # noqa: BLE001 - a loss may raise anything
        return last_line(problem), np.zeros(1 + PARAMETERS)


def _answered(rank: int, job: Mapping[str, Any]) -> dict[str, Any]:
    import torch
    from torch import distributed

    error, parts = _parts(rank, job)
    total = torch.from_numpy(parts)
    try:
        distributed.all_reduce(total)
    except RuntimeError as problem:  # the other rank is gone, or somewhere else
        error = error or last_line(problem)
    return {"error": error, "sum": total.tolist()}


def _send(end: Connection, **answer: Any) -> None:
    end.send_bytes(json.dumps(answer).encode())
