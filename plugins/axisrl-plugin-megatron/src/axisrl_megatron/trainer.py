"""MegatronTrainer: packed forward and backward through Megatron-core's layers, with AdamW.

1. A policy or a value model (:mod:`axisrl_megatron.held`) is trained whole; a frozen one only
   answers, and takes another trainer's weights.
2. A loss gives numerators; their sum under ``columns["weights"]`` is the loss. Masked positions
   are never read, so NaN there changes nothing.
3. Of several ranks (:mod:`axisrl_megatron.mesh`) some share each layer or the tokens of a batch,
   some have other layers (:mod:`axisrl_megatron.passes`), the others share the batches: gradients
   are summed, the norm is of all. What a rank draws follows from the seed, its share and the step,
   so that rank 0's checkpoint is enough for all.

It does not know rewards or algorithms, and computes no denominators.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.ops.adamw import Optimizer
from axisrl.ops.generators import Generators
from axisrl.ops.host_memory import HostMemory, TrainerMemory
from axisrl.ops.micro_batch import check_loss
from axisrl.ops.step_totals import StepTotals
from axisrl.ops.weights_offer import weight_offer
from axisrl.ops.weights_out import WeightPublisher
from axisrl.ops.weights_sent import WeightSender
from axisrl.protocols import ReadExperts, TrainerPart
from axisrl.protocols.loss import Loss
from axisrl.runtime.ranks import this_host
from axisrl.types import (
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
from axisrl_megatron.checkpoint import FrozenState, TrainerState
from axisrl_megatron.config import MegatronConfig
from axisrl_megatron.device import use_device
from axisrl_megatron.held import HeldModel
from axisrl_megatron.idle import together
from axisrl_megatron.layout import SIZES, Layout
from axisrl_megatron.mesh import Mesh
from axisrl_megatron.passes import add_gradients, logprob_answers, value_answers
from axisrl_megatron.received import FrozenReceiver
from axisrl_megatron.replay import kept_fraction


class _Training(NamedTuple):
    """What only a trained model has."""

    optimizer: Optimizer
    generators: Generators
    publisher: WeightPublisher | WeightSender


class MegatronTrainer:
    """A :class:`axisrl.protocols.DataParallelTrainer` and
    :class:`axisrl.protocols.OffloadingTrainer`, one device a rank."""

    provides = frozenset({"old_logprobs", "entropy", "values"})

    def __init__(self, config: MegatronConfig, context: BuildContext) -> None:
        self._config = config
        self._context = context
        self._ranks: Ranks | None = None
        self._read: ReadExperts | None = None
        self._mesh: Mesh | None = None
        self._model: HeldModel | None = None
        self._training: _Training | None = None
        self._receiver: FrozenReceiver | None = None
        self._memory = TrainerMemory("", {})

    def join(self, ranks: Ranks) -> Share:
        """See the protocol. Raises ``ConfigError`` for a number of ranks that ``tensor`` does not
        divide."""
        self._ranks = ranks
        layout = self._layout(ranks.size)
        divides = self._config.distributed_optimizer and layout.replicas > 1
        return dataclasses.replace(layout.share(ranks.rank), divides_state=divides)

    def replay_routing(self, read: ReadExperts) -> None:
        """See the protocol. ``start`` raises ``ConfigError`` for a model without experts."""
        self._read = read

    def _layout(self, world: int) -> Layout:
        sizes = {name: getattr(self._config, name) for name in SIZES}
        return Layout.over(world, sequence=self._config.sequence, **sizes)

    def start(self, model: ModelSpec, total_steps: int | None) -> None:
        """See the protocol. Raises ``ConfigError`` for float16 and for options that Megatron
        refuses, ``EnvironmentProblem`` for a model that it does not know."""
        if model.dtype == "float16":
            raise ConfigError(
                "the Megatron trainer has no float16",
                fix="set model.dtype to float32 or bfloat16",
            )
        self.stop()
        ranks = None if total_steps is None else self._ranks
        layout = Layout()
        if total_steps is not None:
            layout = self._layout(1 if ranks is None else ranks.size)
        self._mesh = Mesh(layout, ranks)
        try:
            self._hold(model, self._mesh, total_steps)
        except BaseException:  # whatever it was, the groups are not left behind
            self.stop()
            raise

    def _hold(self, model: ModelSpec, mesh: Mesh, total_steps: int | None) -> None:
        config = self._config
        if total_steps is None:
            config = dataclasses.replace(config, lora=None)
        held = HeldModel(model, config, mesh, seed=self._context.seed)
        if self._read is not None:
            held.replay_routing(self._read)
        parts: dict[TrainerPart, HostMemory] = {"weights": HostMemory(held.device, held.tensors)}
        if total_steps is None:
            held.freeze()
            self._receiver = FrozenReceiver(held)
        else:
            training = self._training = self._prepare(held, total_steps)
            parts["optimizer"] = HostMemory(held.device, training.optimizer.beside_weights)
            if isinstance(training.publisher, WeightSender):
                leader, *_ = mesh.gather(training.publisher.address)
                training.publisher.join(leader)
        self._memory = TrainerMemory(model.name, parts)
        self._model = held

    def _prepare(self, held: HeldModel, total_steps: int) -> _Training:
        norm = held.norm if held.mesh.layout.parts > 1 else None
        division = held.division() if self._config.distributed_optimizer else None
        named = list(held.trained().items())
        return _Training(
            Optimizer(named, self._config, total_steps, norm=norm, division=division),
            Generators(self._context.seed, held.device),
            weight_offer(
                self._config, self._context.run_dir, this_host(), self._ranks, self._offered
            ),
        )

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

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """See the protocol. Raises ``ConfigError`` for a value model."""
        held = self._ready()
        held.expect(batches)
        with torch.no_grad(), together(held, batches):
            return logprob_answers(held, batches)

    def values(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """See the protocol. Raises ``ConfigError`` for a model without a value head."""
        held = self._ready()
        with torch.no_grad(), together(held, batches):
            return value_answers(held, batches)

    def step(self, batches: Sequence[PackedBatch], loss: Loss) -> StepStats:
        """See the protocol. Raises ``ConfigError`` when the loss is not for this model or needs
        what is not provided, and ``EnvironmentProblem`` for a frozen model."""
        held, training = self._ready("optimizer"), self._trained("make a step")
        check_loss(loss, held.spec, self.provides)
        totals = StepTotals()
        held.expect(batches)
        self._reseed(held, training)
        with training.generators.active(), together(held, batches):
            add_gradients(held, batches, loss, totals)
        if self._read is not None:
            totals.add_fraction("router_replay_fraction", *kept_fraction(batches))
        if self._ranks is not None:
            held.mesh.meet()
            optimizer = training.optimizer
            held.sum_gradients(optimizer.gradients(), data=not optimizer.divided)
            own = totals.on_cpu() if held.mesh.share.speaks else None
            totals = StepTotals.over([one for one in held.mesh.gather(own) if one is not None])
        report = training.optimizer.step()
        if not report.applied:
            self._context.logger.warning(
                "update %d skipped: gradient norm is %s",
                training.optimizer.steps,
                report.grad_norm,
            )
        return totals.finish(report)

    def _reseed(self, held: HeldModel, training: _Training) -> None:
        if self._ranks is not None:
            share = held.mesh.share.index
            rng = self._context.rng("trainer", share, training.optimizer.steps)
            training.generators.reseed(int(rng.integers(2**63)))

    def weight_update(self, version: int) -> WeightUpdate:
        """See the protocol. Tied weights are written once, under their first name. With
        ``lora.update`` adapter a policy offers its adapter alone."""
        held, training = self._ready(), self._trained("offer weights")
        if held.mesh.layout.parts == 1:
            named, adapter = held.offered()
            return training.publisher.publish(version, dict(named), adapter)
        told = held.mesh.gather(self._together(held, training.publisher, version))
        return next(one for one in told if one is not None)

    def _together(
        self, held: HeldModel, publisher: WeightPublisher | WeightSender, version: int
    ) -> WeightUpdate | None:
        """What rank 0 offers of a model that ranks divide."""
        first, sends = held.mesh.rank == 0, isinstance(publisher, WeightSender)
        named, adapter = held.offered(everywhere=sends)
        if isinstance(publisher, WeightSender):
            publisher.collect(named, held.size())
            held.mesh.meet()  # the others send their share when rank 0 tells them to
            return publisher.publish_collected(version, adapter) if first else None
        stays = self._config.transport == "cuda_ipc"
        weights = {name: value if stays else value.cpu() for name, value in named}
        return publisher.publish(version, weights, adapter) if first else None

    def _offered(self) -> Mapping[str, Tensor]:
        return dict(self._ready().offered()[0])

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
        if self._training is None:
            return FrozenState(held)
        return TrainerState(held, self._training.optimizer, self._training.generators)

    def stop(self) -> None:
        """See the protocol."""
        if self._training is not None:
            self._training.publisher.close()
        self._model = self._training = self._receiver = None
        self._memory = TrainerMemory("", {})
        if self._mesh is not None:
            self._mesh.leave()
            self._mesh = None

    def _held(self) -> HeldModel:
        if self._model is None:
            raise EnvironmentProblem("the trainer is not started", fix="call start first")
        use_device(self._model.device)
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
