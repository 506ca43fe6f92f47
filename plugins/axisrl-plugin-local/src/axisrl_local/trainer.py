"""LocalTrainer: packed forward and backward with AdamW, on a CPU or one CUDA device a rank.

1. A policy or a value model (:mod:`axisrl_local.held_model`) is trained whole or through an adapter
   (:mod:`axisrl_local.lora`); a frozen one only answers, and takes another trainer's weights.
2. A loss gives numerators; their sum under ``columns["weights"]`` is the loss. Masked positions
   are never read, so NaN there changes nothing.
3. Of several ranks (:mod:`axisrl.ops.rank_group`) each holds the whole model and adds its
   gradient to the others' before the step. What a rank draws (dropout) follows from the seed, its
   rank and the step, so that rank 0's checkpoint is enough for all.

It does not know rewards or algorithms, compute denominators, or shard a model.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl.ops.host_memory import HostMemory, TrainerMemory
from axisrl.ops.masters import Division
from axisrl.ops.micro_batch import add_gradients, check_loss, logprob_answers, value_answers
from axisrl.ops.rank_group import RankGroup
from axisrl.ops.step_totals import StepTotals
from axisrl.ops.weights_offer import weight_offer
from axisrl.ops.weights_out import WeightPublisher
from axisrl.ops.weights_sent import WeightSender
from axisrl.protocols import TrainerPart
from axisrl.protocols.loss import Loss
from axisrl.runtime.ranks import this_host
from axisrl.types import (
    AdapterMeta,
    BuildContext,
    FloatArray,
    ModelSpec,
    PackedBatch,
    Ranks,
    Share,
    StepStats,
    WeightAck,
    WeightUpdate,
)
from axisrl_local.checkpoint import FrozenState, TrainerState
from axisrl_local.held_model import HeldModel
from axisrl_local.trainer_config import TrainerConfig
from axisrl_local.weights_in import WeightReceiver, model_tensors


class _Training(NamedTuple):
    """What only a trained model has."""

    optimizer: Optimizer
    generators: Generators
    publisher: WeightPublisher | WeightSender


class LocalTrainer:
    """A :class:`axisrl.protocols.DataParallelTrainer` and
    :class:`axisrl.protocols.OffloadingTrainer`, one device a rank."""

    provides = frozenset({"old_logprobs", "entropy", "values"})

    def __init__(self, config: TrainerConfig, context: BuildContext) -> None:
        self._config = config
        self._context = context
        self._model: HeldModel | None = None
        self._receiver: WeightReceiver | None = None
        self._training: _Training | None = None
        self._memory = TrainerMemory("", {})
        self._ranks: Ranks | None = None
        self._group: RankGroup | None = None

    def join(self, ranks: Ranks) -> Share:
        """See the protocol. Every rank holds the whole model."""
        self._ranks = ranks
        return Share(index=ranks.rank, count=ranks.size, divides_state=self._divides())

    def start(self, model: ModelSpec, total_steps: int | None) -> None:
        """See the protocols. Raises ``ConfigError`` for training in float16, whose gradients
        underflow, and ``RankLost`` when a rank does not come."""
        if total_steps is not None and model.dtype == "float16":
            raise ConfigError(
                "the local trainer does not train in float16: small gradients become 0",
                fix="set model.dtype to float32 or bfloat16",
            )
        self.stop()
        held = HeldModel(model, self._config, seed=self._context.seed)
        if total_steps is None:
            held.freeze()
            self._receiver = WeightReceiver(held.net)
        else:
            if self._ranks is not None:
                self._group = RankGroup(self._ranks)
            training = self._training = self._prepare(held, total_steps)
            if self._group is not None and isinstance(training.publisher, WeightSender):
                leader, *_ = self._group.gather(training.publisher.address)
                training.publisher.join(leader)
        self._memory = TrainerMemory(model.name, self._parts(held))
        self._model = held

    def _parts(self, held: HeldModel) -> dict[TrainerPart, HostMemory]:
        model = partial(model_tensors, held.net, self._receiver)
        parts: dict[TrainerPart, HostMemory] = {"weights": HostMemory(held.device, model)}
        if self._training is not None:
            optimizer = self._training.optimizer
            parts["optimizer"] = HostMemory(held.device, optimizer.beside_weights)
        return parts

    def offload(self, parts: Collection[TrainerPart]) -> None:
        """See the protocol. On a CPU nothing is freed."""
        self._held()
        if "weights" in parts and self._training is not None:
            self._training.publisher.withdraw()
        self._memory.offload(parts)

    def reload(self, parts: Collection[TrainerPart]) -> None:
        """See the protocol."""
        self._held()
        self._memory.reload(parts)

    def _prepare(self, held: HeldModel, total_steps: int) -> _Training:
        generators = Generators(self._context.seed, held.device)
        if self._config.lora is not None:
            with generators.active():
                held.adapt(self._config.lora)
        if self._config.recompute:
            held.recompute()
        return _Training(
            Optimizer(
                list(held.trained().items()),
                self._config,
                total_steps,
                self._config.master_weights,
                division=self._division(),
            ),
            generators,
            self._publisher(),
        )

    def _division(self) -> Callable[[str], Division] | None:
        if self._group is None or not self._divides():
            return None
        everybody = Division(self._group)
        return lambda name: everybody

    def _divides(self) -> bool:
        several = self._ranks is not None and self._ranks.size > 1
        return several and self._config.distributed_optimizer

    def _publisher(self) -> WeightPublisher | WeightSender:
        def offered() -> Mapping[str, Tensor]:
            return self._offered(self._ready())[0]

        return weight_offer(self._config, self._context.run_dir, this_host(), self._ranks, offered)

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """See the protocol. Raises ``ConfigError`` for a value model."""
        return logprob_answers(self._ready(), batches)

    def values(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """See the protocol. Raises ``ConfigError`` for a model without a value head."""
        return value_answers(self._ready(), batches)

    def step(self, batches: Sequence[PackedBatch], loss: Loss) -> StepStats:
        """See the protocol. Raises ``ConfigError`` when the loss is not for this model or needs
        what is not provided, and ``EnvironmentProblem`` for a frozen model."""
        held, training = self._ready("optimizer"), self._trained("make a step")
        check_loss(loss, held.spec, self.provides)
        totals = StepTotals()
        self._reseed(training)
        with training.generators.active(), held.training():
            add_gradients(held, batches, loss, totals)
        optimizer = training.optimizer
        if self._group is not None:
            self._group.meet()
            if not optimizer.divided:
                self._group.sum_(optimizer.gradients())
            totals = StepTotals.over(self._group.gather(totals.on_cpu()))
        report = optimizer.step()
        if not report.applied:
            self._context.logger.warning(
                "update %d skipped: gradient norm is %s", optimizer.steps, report.grad_norm
            )
        return totals.finish(report)

    def _reseed(self, training: _Training) -> None:
        if self._ranks is not None:
            rng = self._context.rng("trainer", self._ranks.rank, training.optimizer.steps)
            training.generators.reseed(int(rng.integers(2**63)))

    def weight_update(self, version: int) -> WeightUpdate:
        """See the protocol. Tied weights are written once, under their first name. With
        ``lora.update`` adapter a policy offers its adapter alone."""
        held, training = self._ready(), self._trained("offer weights")
        return training.publisher.publish(version, *self._offered(held))

    def _offered(self, held: HeldModel) -> tuple[Mapping[str, Tensor], AdapterMeta | None]:
        """What engines are given now."""
        lora = self._config.lora
        if held.adapter is None or lora is None or lora.update == "merged":
            return held.weights(), None
        if held.spec.head == "value":
            return held.weights(), None
        tensors = {name: value.detach() for name, value in held.adapter.tensors().items()}
        return tensors, held.adapter.meta

    def update_weights(self, update: WeightUpdate) -> WeightAck:
        """See the protocol. Raises ``EnvironmentProblem`` for a model that is being trained and
        ``WeightSyncError`` for weights that do not fit."""
        self._ready()
        if self._receiver is None:
            raise EnvironmentProblem(
                "a model that is being trained does not take another's weights",
                fix="start it without total_steps to freeze it",
            )
        return WeightAck(version=update.version, checksum=self._receiver.load(update))

    def save(self, path: Path) -> None:
        """See the protocol. ``path / "model"`` is a folder that transformers loads."""
        self._state().save(path)

    def load(self, path: Path) -> None:
        """See the protocol."""
        self._state().load(path)

    def _state(self) -> TrainerState | FrozenState:
        held = self._held()
        if self._receiver is not None:
            return FrozenState(held, self._receiver)
        training = self._trained("save")
        first = self._ranks is None or self._ranks.rank == 0
        return TrainerState(held, training.optimizer, training.generators, writes=first)

    def stop(self) -> None:
        """See the protocol."""
        if self._training is not None:
            self._training.publisher.close()
        if self._group is not None:
            self._group.close()
        self._model = self._receiver = self._training = self._group = None
        self._memory = TrainerMemory("", {})

    def _held(self) -> HeldModel:
        if self._model is None:
            raise EnvironmentProblem("the trainer is not started", fix="call start first")
        return self._model

    def _ready(self, *more: TrainerPart) -> HeldModel:
        """The model, once its weights and ``more`` are on the device."""
        held = self._held()
        self._memory.require("weights", *more)
        return held

    def _trained(self, what: str) -> _Training:
        if self._training is None:
            raise EnvironmentProblem(
                f"a frozen model cannot {what}: it has no optimizer",
                fix="start it with total_steps to train it",
            )
        return self._training
