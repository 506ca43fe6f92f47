"""MegatronTrainer: packed forward and backward through Megatron-core's layers, with AdamW.

1. A policy or a value model (:mod:`axisrl_megatron.held`) is trained whole; a frozen one only
   answers, and takes another trainer's weights.
2. A loss gives numerators; their sum under ``columns["weights"]`` is the loss. Masked positions
   are never read, so NaN there changes nothing.

It does not know rewards or algorithms, and computes no denominators.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from axisrl.errors import ConfigError, EnvironmentProblem, RunFailed
from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl.ops.host_memory import HostMemory
from axisrl.ops.micro_batch import add_gradient, answers, check_loss
from axisrl.ops.step_totals import StepTotals
from axisrl.ops.token_batch import token_batch
from axisrl.ops.weights_out import WeightPublisher
from axisrl.protocols import TrainerPart
from axisrl.protocols.loss import Loss
from axisrl.types import (
    BuildContext,
    FloatArray,
    ModelSpec,
    PackedBatch,
    StepStats,
    WeightAck,
    WeightUpdate,
)
from axisrl_megatron import mesh
from axisrl_megatron.checkpoint import FrozenState, TrainerState
from axisrl_megatron.config import MegatronConfig
from axisrl_megatron.held import HeldModel
from axisrl_megatron.layout import Layout
from axisrl_megatron.received import receive


class _Training(NamedTuple):
    """What only a trained model has."""

    optimizer: Optimizer
    generators: Generators
    publisher: WeightPublisher


class MegatronTrainer:
    """A :class:`axisrl.protocols.OffloadingTrainer` on one device."""

    provides = frozenset({"old_logprobs", "entropy", "values"})

    def __init__(self, config: MegatronConfig, context: BuildContext) -> None:
        self._config = config
        self._context = context
        self._layout: Layout | None = None
        self._model: HeldModel | None = None
        self._training: _Training | None = None
        self._memory: Mapping[TrainerPart, HostMemory] = {}
        self._away: set[TrainerPart] = set()

    def start(self, model: ModelSpec, total_steps: int | None) -> None:
        """See the protocol. Raises ``ConfigError`` for float16 and for options that Megatron
        refuses, ``EnvironmentProblem`` for a model that it does not know."""
        if model.dtype == "float16":
            raise ConfigError(
                "the Megatron trainer has no float16",
                fix="set model.dtype to float32 or bfloat16",
            )
        self.stop()
        layout = Layout()
        mesh.enter(layout)
        self._layout = layout
        try:
            self._hold(model, total_steps)
        except BaseException:  # whatever it was, the groups are not left behind
            self.stop()
            raise

    def _hold(self, model: ModelSpec, total_steps: int | None) -> None:
        held = HeldModel(model, self._config, seed=self._context.seed)
        parts: dict[TrainerPart, HostMemory] = {"weights": HostMemory(held.device, held.tensors)}
        if total_steps is None:
            held.freeze()
        else:
            training = self._training = self._prepare(held, total_steps)
            parts["optimizer"] = HostMemory(held.device, training.optimizer.beside_weights)
        self._memory = parts
        self._model = held

    def _prepare(self, held: HeldModel, total_steps: int) -> _Training:
        return _Training(
            Optimizer(list(held.trained().items()), self._config, total_steps),
            Generators(self._context.seed, held.device),
            WeightPublisher(
                self._context.run_dir, self._config.transport, self._config.bucket_mib * 2**20
            ),
        )

    def offload(self, parts: Collection[TrainerPart]) -> None:
        """See the protocol. On a CPU nothing is freed."""
        self._held()
        if "weights" in parts and self._training is not None:
            self._training.publisher.withdraw()
        for part in self._memory.keys() & parts:
            self._away.add(part)
            self._memory[part].offload()

    def reload(self, parts: Collection[TrainerPart]) -> None:
        """See the protocol."""
        self._held()
        for part in self._memory.keys() & parts:
            self._memory[part].reload()
            self._away.discard(part)

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """See the protocol. Raises ``ConfigError`` for a value model."""
        held = self._ready()
        if held.spec.head == "value":
            raise ConfigError(
                "a value model has no log-probabilities", fix="ask the policy's trainer"
            )
        return answers(batches, held.device, lambda tokens: held.logprobs(tokens)[0])

    def values(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """See the protocol. Raises ``ConfigError`` for a model without a value head."""
        held = self._ready()
        if held.spec.head != "value":
            raise ConfigError(
                "this model has no value head", fix="start the trainer with model.head value"
            )
        return answers(batches, held.device, held.values)

    def step(self, batches: Sequence[PackedBatch], loss: Loss) -> StepStats:
        """See the protocol. Raises ``ConfigError`` when the loss is not for this model or needs
        what is not provided, and ``EnvironmentProblem`` for a frozen model."""
        held, training = self._ready("optimizer"), self._trained("make a step")
        check_loss(loss, held.spec, self.provides)
        totals = StepTotals()
        with training.generators.active():
            for batch in batches:
                totals.tokens += batch.tokens
                tokens = token_batch(batch, held.device)
                if tokens is not None:
                    add_gradient(held, tokens, loss, totals)
        report = training.optimizer.step()
        if not report.applied:
            self._context.logger.warning(
                "update %d skipped: gradient norm is %s",
                training.optimizer.steps,
                report.grad_norm,
            )
        return totals.finish(report)

    def weight_update(self, version: int) -> WeightUpdate:
        """See the protocol. Tied weights are written once, under their first name."""
        held, training = self._ready(), self._trained("offer weights")
        return training.publisher.publish(version, held.weights())

    def update_weights(self, update: WeightUpdate) -> WeightAck:
        """See the protocol. Raises ``EnvironmentProblem`` for a model that is being trained and
        ``WeightSyncError`` for weights that do not fit."""
        held = self._ready()
        if self._training is not None:
            raise EnvironmentProblem(
                "a model that is being trained does not take another's weights",
                fix="start it without total_steps to freeze it",
            )
        return WeightAck(version=update.version, checksum=receive(held, update))

    def save(self, path: Path) -> None:
        """See the protocol. ``path / "model"`` is a folder that transformers loads."""
        self._state().save(path)

    def load(self, path: Path) -> None:
        """See the protocol."""
        self._state().load(path)

    def _state(self) -> TrainerState | FrozenState:
        held = self._held()
        if self._training is None:
            return FrozenState(held)
        return TrainerState(held, self._training.optimizer, self._training.generators)

    def stop(self) -> None:
        """See the protocol."""
        if self._training is not None:
            self._training.publisher.close()
        self._model = self._training = None
        self._memory = {}
        self._away.clear()
        if self._layout is not None:
            mesh.leave(self._layout)
            self._layout = None

    def _held(self) -> HeldModel:
        if self._model is None:
            raise EnvironmentProblem("the trainer is not started", fix="call start first")
        return self._model

    def _ready(self, *more: TrainerPart) -> HeldModel:
        """The model, once its weights and ``more`` are on the device."""
        held = self._held()
        if missing := self._away & {"weights", *more}:
            raise RunFailed(
                f"{' and '.join(sorted(missing))} of {held.spec.name!r} were moved off the device",
                fix="call reload first",
            )
        return held

    def _trained(self, what: str) -> _Training:
        if self._training is None:
            raise EnvironmentProblem(
                f"a frozen model cannot {what}: it has no optimizer",
                fix="start it with total_steps to train it",
            )
        return self._training
