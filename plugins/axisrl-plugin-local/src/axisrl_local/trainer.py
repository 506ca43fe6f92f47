"""LocalTrainer: packed forward and backward with AdamW, on a CPU or one CUDA device.

1. A packed batch goes through the model's body once; attention stays inside each row.
2. The head runs at trained tokens alone, a chunk at a time (:mod:`axisrl_local.logprobs`).
3. A loss gives numerators; their sum under ``columns["weights"]`` is the loss. Masked positions
   are never read, so NaN there changes nothing.

It does not know rewards or algorithms, compute denominators, or shard a model.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl.protocols.loss import Loss, LossStat
from axisrl.types import BuildContext, FloatArray, ModelSpec, PackedBatch, StepStats, WeightUpdate
from axisrl_local.checkpoint import TrainerState, load_checkpoint, save_checkpoint
from axisrl_local.generators import Generators
from axisrl_local.load import load_model
from axisrl_local.logprobs import HeadPlan, token_logprobs
from axisrl_local.optim import Optimizer
from axisrl_local.packed import register_packed_attention
from axisrl_local.step_totals import StepTotals
from axisrl_local.token_batch import TokenBatch, loss_inputs, token_batch
from axisrl_local.trainer_config import TrainerConfig
from axisrl_local.weights_out import WeightPublisher

_MIB = 1 << 20


class LocalTrainer:
    """A :class:`axisrl.protocols.trainer.TrainerBackend` for one device."""

    provides = frozenset({"old_logprobs", "entropy"})

    def __init__(self, config: TrainerConfig, context: BuildContext) -> None:
        self._config = config
        self._context = context
        self._model: Any = None
        self._optimizer: Optimizer
        self._generators: Generators
        self._spec: ModelSpec
        self._publisher: WeightPublisher | None = None

    def start(self, model: ModelSpec, total_steps: int) -> None:
        """See the protocol. Raises ``ConfigError`` for float16, whose gradients underflow."""
        if model.dtype == "float16":
            raise ConfigError(
                "the local trainer does not train in float16: small gradients become 0",
                fix="set model.dtype to float32 or bfloat16",
            )
        loaded = load_model(model, attention=register_packed_attention())
        _check_head(loaded, model)
        if self._config.recompute:
            loaded.gradient_checkpointing_enable({"use_reentrant": False})
            loaded.train()
        self._model, self._spec = loaded, model
        self._optimizer = Optimizer(list(loaded.named_parameters()), self._config, total_steps)
        self._generators = Generators(self._context.seed, self._device)
        self._publisher = WeightPublisher(self._context.run_dir, self._config.transport)

    def logprobs(self, batches: Sequence[PackedBatch]) -> Sequence[FloatArray]:
        """See the protocol."""
        with torch.no_grad():
            return [self._batch_logprobs(batch) for batch in batches]

    def _batch_logprobs(self, batch: PackedBatch) -> FloatArray:
        tokens = token_batch(batch, self._device)
        if tokens is None:
            return np.zeros(batch.tokens, dtype=np.float32)
        logprobs_M, _ = self._forward(tokens, entropy=False)
        result: FloatArray = tokens.full(logprobs_M).cpu().numpy()
        return result

    def step(self, batches: Sequence[PackedBatch], loss: Loss) -> StepStats:
        """See the protocol. Raises ``ConfigError`` when the loss needs what is not provided."""
        if missing := sorted(loss.needs - self.provides):
            raise ConfigError(
                f"the loss needs {', '.join(missing)}, which the local trainer does not provide",
                fix=f"choose a loss that needs no more than {', '.join(sorted(self.provides))}",
            )
        totals = StepTotals()
        with self._generators.active():
            for batch in batches:
                totals.tokens += batch.tokens
                tokens = token_batch(batch, self._device)
                if tokens is not None:
                    self._backward(tokens, loss, totals)
        report = self._optimizer.step()
        if not report.applied:
            self._context.logger.warning(
                "update %d skipped: gradient norm is %s", self._optimizer.steps, report.grad_norm
            )
        return totals.finish(report)

    def _backward(self, tokens: TokenBatch, loss: Loss, totals: StepTotals) -> None:
        """Add one micro-batch's gradient, loss and statistics."""
        trained_M = tokens.trained_M
        logprobs_M, entropy_M = self._forward(tokens, entropy="entropy" in loss.needs)
        entropy_N = tokens.full(entropy_M)
        result = loss(loss_inputs(tokens, tokens.full(logprobs_M), entropy_N, loss.needs))
        weights_M = tokens.column("weights")[trained_M]
        total = (result.per_token_N[trained_M] * weights_M).sum()
        total.backward()  # type: ignore[no-untyped-call]
        stats = dict(result.stats)
        if "entropy" in loss.needs:
            stats["entropy"] = LossStat(values_N=entropy_N)
        totals.trained += len(trained_M)
        totals.add_loss(total)
        totals.add_stats(stats, trained_M)

    def _forward(self, tokens: TokenBatch, *, entropy: bool) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies (0 unless asked for) of the trained tokens, (M,)."""
        output = self._model.base_model(
            input_ids=tokens.ids_N[None],
            position_ids=tokens.positions_N[None],
            use_cache=False,
            rows=tokens.rows,
        )
        hidden_MH = output.last_hidden_state[0].index_select(0, tokens.trained_M)
        plan = HeadPlan(
            chunk_tokens=self._config.chunk_tokens,
            kept_bytes=self._config.kept_logits_mib * _MIB,
            entropy=entropy,
        )
        weight_VH = self._model.get_output_embeddings().weight
        return token_logprobs(hidden_MH, weight_VH, tokens.labels_M, tokens.temperature_M, plan)

    @property
    def _state(self) -> TrainerState:
        return TrainerState(self._model, self._optimizer, self._generators)

    @property
    def _device(self) -> torch.device:
        device: torch.device = self._model.get_output_embeddings().weight.device
        return device

    def weight_update(self, version: int) -> WeightUpdate:
        """See the protocol. Tied weights are written once, under their first name."""
        if self._publisher is None:
            raise EnvironmentProblem("the trainer is not started", fix="call start first")
        weights = {name: value.detach() for name, value in self._model.named_parameters()}
        return self._publisher.publish(version, weights)

    def save(self, path: Path) -> None:
        """See the protocol. ``path / "model"`` is a folder that transformers loads."""
        save_checkpoint(path, self._state, self._spec.path)

    def load(self, path: Path) -> None:
        """See the protocol."""
        load_checkpoint(path, self._state)

    def stop(self) -> None:
        """See the protocol."""
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None
        if self._model is not None:
            self._model = None
            del self._optimizer


def _check_head(model: Any, spec: ModelSpec) -> None:
    head = model.get_output_embeddings()
    if not isinstance(head, torch.nn.Linear) or head.bias is not None:
        raise EnvironmentProblem(
            f"model {spec.name!r} has an output layer other than a plain matrix",
            fix="use a Llama, Qwen2 or Qwen3 type model",
        )
