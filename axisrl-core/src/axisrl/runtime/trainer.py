"""TrainerActor and ValueActor: the two models that learn. Rows by handle in, optimizer steps out.

Each computes what its loss needs and nothing else.

Of several ranks (``placement.trainer_ranks``) every one loads the whole window, so that credit and
denominators are of all of it; each then passes only its share of the packed batches through its
model.
"""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from axisrl.config.schema import TeacherConfig, Use, needed
from axisrl.errors import ConfigError
from axisrl.protocols import Advantage, DataParallelTrainer, HandleStore, Loss
from axisrl.runtime.actors import ActorBoot
from axisrl.runtime.backend import BackendActor
from axisrl.runtime.batch import with_weights
from axisrl.runtime.credit import Member, assign
from axisrl.runtime.ranks import free_address
from axisrl.runtime.rows import WindowInput
from axisrl.types import (
    Handle,
    PackedBatch,
    Ranks,
    RolloutGroup,
    Sample,
    Share,
    StepStats,
    WeightUpdate,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """An optimizer step as the driver sees it."""

    stats: StepStats
    rows: int
    batches: int
    over_age_tokens: int = 0
    """Sampled tokens left out because their weight version was too old."""
    ages: tuple[int, ...] = ()
    """Tokens by the versions between them and the update: 0, 1, ... and last those that are older
    than is trained on."""
    began: float = 0.0
    """By the wall clock there."""
    seconds: float = 0.0


class LearnerActor(BackendActor):
    """A model with an optimizer. Subclasses say which loss it has and how its rows are made."""

    def __init__(
        self, boot: ActorBoot, store: HandleStore | None, loss: tuple[Use, str], trainer: Use
    ) -> None:
        """``loss``: its place in the config and the key of that place."""
        super().__init__(boot, store)
        advantage = needed(boot.config.advantage, "advantage")
        self.advantage: Advantage = self.build("advantage", advantage, "advantage")
        self.loss: Loss = self._objective(self.build("loss", *loss))
        self.backend = self.build("trainer", trainer, "trainer")
        missing = self.loss.needs - self.backend.provides - _COLUMNS
        if missing:
            raise ConfigError(
                f"{loss[1]}: {loss[0].use} needs {', '.join(sorted(missing))}, which trainer "
                f"{trainer.use} does not provide",
                fix="choose another loss or trainer",
            )
        whole = self.loss.level == "trajectory"
        self.budget = dataclasses.replace(self.budget, whole_trajectories=whole)
        self._share = Share(index=0, count=1)
        self._window: list[list[Sample]] = []
        self._ages: list[tuple[int, ...]] = []
        self._masked: list[int] = []
        """Tokens of each update that were too old."""

    def _objective(self, loss: Loss) -> Loss:
        return loss

    def _rows(self, member: Member) -> list[Sample]:
        raise NotImplementedError

    def needs(self) -> frozenset[str]:
        """What the loss is computed from."""
        return self.loss.needs

    def rendezvous(self) -> str:
        """Where the ranks of this model can meet, if this is their rank 0."""
        return free_address()

    def join(self, rendezvous: str) -> Share:
        """Be one of several ranks; before ``start``. Returns which batches are this one's. Raises
        ``ConfigError`` when the backend trains alone."""
        if not isinstance(self.backend, DataParallelTrainer):
            raise ConfigError(
                f"the trainer of the {self.boot.role} trains alone",
                fix="set placement.trainer_ranks to 1",
            )
        ranks = Ranks(
            rank=self.boot.rank,
            size=self.boot.config.placement.trainer_ranks,
            rendezvous=rendezvous,
            timeout_s=self.boot.config.placement.rank_timeout_s,
        )
        self._share = self.backend.join(ranks)
        return self._share

    def start(self, total_steps: int) -> None:
        """Load the model and make the optimizer."""
        self.backend.start(self.boot.model, total_steps)

    async def load_window(self, window: WindowInput) -> dict[str, float]:
        """Fetch the rows of a window's updates and give them credit; returns the mean advantage of
        each rollout by id."""
        updates = await self.fetch(window)
        for groups in updates:
            assign(groups, self.advantage, self._teacher)
        members = [[m for loaded in groups for m in loaded.members] for groups in updates]
        rows = [[row for m in update for row in self._rows(m)] for update in members]
        self._window = [[_fresh(row, window.oldest_version) for row in update] for update in rows]
        self._ages = [_ages(update, window) for update in rows]
        self._masked = [
            sum(int(one.loss_mask.sum() - other.loss_mask.sum()) for one, other in pairs)
            for pairs in (zip(*both, strict=True) for both in zip(rows, self._window, strict=True))
        ]
        return {
            m.id: float(m.advantages.mean())
            for update in members
            for m in update
            if m.advantages is not None
        }

    @property
    def _teacher(self) -> TeacherConfig | None:
        return None

    async def step(self, index: int) -> StepReport:
        """Take update ``index`` of the loaded window."""
        began, clock = time.time(), time.monotonic()
        samples = with_weights(self._window[index], self.loss.aggregation, self.loss.sequence_norm)
        packed = self._pack(samples)
        stats = await asyncio.to_thread(self.backend.step, self._mine(packed), self.loss)
        return StepReport(
            stats=stats,
            rows=len(samples),
            batches=len(packed),
            over_age_tokens=self._masked[index],
            ages=self._ages[index],
            began=began,
            seconds=time.monotonic() - clock,
        )

    def _pack(self, samples: Sequence[Sample]) -> Sequence[PackedBatch]:
        """The batches of every share."""
        return self.packer.pack(samples, dataclasses.replace(self.budget, ranks=self._share.count))

    def _mine(self, packed: Sequence[PackedBatch]) -> list[PackedBatch]:
        return [batch for batch in packed if batch.rank == self._share.index]


class TrainerActor(LearnerActor):
    """The policy."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        config = boot.config
        loss, trainer = needed(config.loss, "loss"), needed(config.trainer, "trainer")
        super().__init__(boot, store, (loss, "loss"), trainer)
        self.replay_routing()
        self.started()

    def _objective(self, loss: Loss) -> Loss:
        from axisrl.ops.objective import Objective

        config = self.boot.config
        corrections = [
            (use.id, self.build("correction", use, f"corrections.{at}"))
            for at, use in enumerate(config.corrections)
        ]
        self.objective = Objective(loss, corrections, config.kl, config.entropy)
        return self.objective

    def set_entropy_coef(self, coef: float) -> None:
        """Factor of the entropy bonus from here on."""
        self.objective.entropy_coef = coef

    async def load_window(self, window: WindowInput) -> dict[str, float]:
        """As every learner; later updates get the log-probabilities of before the first."""
        self._experts.attach()
        means = await super().load_window(window)
        if "old_logprobs" in self.loss.needs:
            # The first update needs no pass: its ratio is 1 by definition, whatever the packing.
            self._window[1:] = await asyncio.to_thread(
                lambda: [self._with_old_logprobs(samples) for samples in self._window[1:]]
            )
        return means

    async def weight_update(self, version: int) -> WeightUpdate:
        """Offer the current weights."""
        return await asyncio.to_thread(self.backend.weight_update, version)

    @property
    def _teacher(self) -> TeacherConfig | None:
        return self.boot.config.teacher

    def _rows(self, member: Member) -> list[Sample]:
        columns = {"advantages": _given(member.advantages)}
        if "reference_logprobs" in self.loss.needs:
            columns["reference_logprobs"] = member.scores["reference_logprobs"]
        return member.trajectory.with_columns(**columns)

    def _with_old_logprobs(self, samples: list[Sample]) -> list[Sample]:
        """A row goes to the same share again when its step is packed: others stay NaN here."""
        old = self.per_token(samples, self.backend.logprobs, self._mine(self._pack(samples)))
        pairs = zip(samples, old, strict=True)
        return [dataclasses.replace(sample, old_logprobs=values) for sample, values in pairs]


class ValueActor(LearnerActor):
    """The value model: says what states are worth, and learns it."""

    def __init__(self, boot: ActorBoot, store: HandleStore | None = None) -> None:
        """``boot.model`` is the value model's."""
        config = boot.config
        if config.value is None:
            raise ValueError("a value actor needs value: in the configuration")
        trainer = config.value.trainer or needed(config.trainer, "trainer")
        super().__init__(boot, store, (config.value.loss, "value.loss"), trainer)
        self.started()

    async def score(self, groups: Sequence[RolloutGroup]) -> dict[str, Handle]:
        """Values of every rollout's trained tokens and, last, of the state it ended in; of several
        shares each answers for every so-manieth rollout."""
        members = [member for group in groups for member in group.members]
        mine = members[self._share.index :: self._share.count]
        trajectories = [(one.id, await self.trajectory(one, at)) for at, one in enumerate(mine)]
        samples = [sample for _, one in trajectories for sample in one.closed()]
        rows = iter(await asyncio.to_thread(self.per_token, samples, self.backend.values))
        handles: dict[str, Handle] = {}
        for rollout, one in trajectories if self._share.speaks else ():
            tokens, last = one.gather_closed([next(rows) for _ in one.samples])
            handles[rollout] = await self.put(np.append(tokens, np.float32(last)))
        return handles

    def _rows(self, member: Member) -> list[Sample]:
        values = member.values
        if values is None or member.returns is None:
            advantage = needed(self.boot.config.advantage, "advantage")
            raise ConfigError(
                f"advantage {advantage.use} gave no returns, and the value model "
                "learns from nothing else",
                fix="choose an advantage that needs values, or leave value: out",
            )
        columns: Mapping[str, np.ndarray] = {
            "advantages": _given(member.advantages),
            "returns": member.returns,
            "old_values": values.tokens,
        }
        return member.trajectory.with_columns(**columns)


def _ages(samples: Sequence[Sample], window: WindowInput) -> tuple[int, ...]:
    if window.version is None:
        return ()
    oldest = window.version - window.oldest_version + 1
    counts = np.zeros(oldest + 1, np.int64)
    for sample in samples:
        ages = window.version - sample.versions[sample.loss_mask]
        counts += np.bincount(np.clip(ages, 0, oldest), minlength=oldest + 1)
    return tuple(int(count) for count in counts)


def _fresh(sample: Sample, oldest: int) -> Sample:
    if not (sample.loss_mask & (sample.versions < oldest)).any():
        return sample
    return dataclasses.replace(sample, loss_mask=sample.loss_mask & (sample.versions >= oldest))


_COLUMNS = frozenset({"reference_logprobs"})
"""What a loss may need that another model computes."""


def _given(advantages: np.ndarray | None) -> np.ndarray:
    if advantages is None:
        raise ValueError("a rollout has no advantages")
    return advantages
