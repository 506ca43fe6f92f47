"""The model of the engine: runs the passes a scheduler planned, on one device, in one thread.

It knows no requests' ends and no asyncio (:mod:`axisrl_local.engine`). One transfer to the device
brings a pass's tokens, one brings what was sampled back.

Shapes: R rows of a pass, S slots, V tokens of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from axisrl.errors import EnvironmentProblem
from axisrl.ops.host_memory import HostMemory, free_cache
from axisrl.protocols import EnginePart
from axisrl.types import FloatArray, IntArray, ModelSpec, WeightUpdate
from axisrl_local.config import EngineConfig
from axisrl_local.load import load_model
from axisrl_local.sampling import IDLE, Draw, Sampler, uniform
from axisrl_local.scheduler import Job, Plan
from axisrl_local.scoring import score
from axisrl_local.slots import (
    ATTENTION,
    Chunk,
    Geometry,
    SlotCache,
    StepAttention,
    all_spans,
    exact_spans,
    length_mask,
    slot_attention,
)
from axisrl_local.weights_in import WeightReceiver, model_tensors

_MODEL_TYPES = ("llama", "qwen2", "qwen3")
_KERNELS = [SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


class Sampled(NamedTuple):
    """A token and its logprob; the logprob is NaN when the model's logits were not finite."""

    token: int
    logprob: float


class ModelRunner:
    """A loaded model with its cache and sampler."""

    def __init__(self, config: EngineConfig, spec: ModelSpec) -> None:
        from transformers import AttentionInterface, AutoTokenizer

        AttentionInterface.register(ATTENTION, slot_attention)
        self._config = config
        self._model = load_model(spec, attention=ATTENTION)
        self._check_supported(spec)
        self._receiver = WeightReceiver(self._model)
        self.tokenizer: Any = AutoTokenizer.from_pretrained(spec.path, local_files_only=True)
        settings = self._model.config
        self.vocabulary = int(settings.vocab_size)
        self.context = min(config.max_context, int(settings.max_position_embeddings))
        weight: Tensor = self._model.get_output_embeddings().weight
        self._device = weight.device
        geometry = _geometry(settings)
        self._spans = self._usable_spans(geometry, weight)
        self._cache = SlotCache(geometry, config.max_batch, weight)
        self._sampler = Sampler(config.max_batch, self.vocabulary, self._device)
        self._weights = HostMemory(
            self._device, partial(model_tensors, self._model, self._receiver)
        )

    @property
    def stop_ids(self) -> frozenset[int]:
        """The model's own end-of-turn tokens."""
        stops: set[int] = set()
        for owner in (self._model.generation_config, self._model.config, self.tokenizer):
            value = getattr(owner, "eos_token_id", None)
            if value is not None:
                stops.update(value if isinstance(value, list) else [value])
        return frozenset(stops)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ``ids``, special tokens included."""
        return str(self.tokenizer.decode(ids, skip_special_tokens=False))

    def step(self, plan: Plan) -> dict[int, Sampled]:
        """Run one pass; what was sampled, by slot."""
        with torch.inference_mode(), sdpa_kernel(_KERNELS):
            for copy in plan.copies:
                self._cache.copy(*copy)
            hidden = self._forward(plan)
            if not plan.sampled:
                return {}
            return self._sample(hidden, plan)

    def load_update(self, update: WeightUpdate) -> str:
        """Take new weights; returns the checksum of what is now served."""
        return self._receiver.load(update)

    def score(self, ids: IntArray, temperature: float) -> FloatArray:
        """Log-probability of each token but the first; the cache stays as it is."""
        with torch.inference_mode(), sdpa_kernel(_KERNELS):
            return score(self._model, ids, temperature)

    def clear(self, slots: Iterable[int]) -> None:
        """Zero slots of the cache that a failed pass may have left unsound."""
        with torch.inference_mode():
            for slot in slots:
                self._cache.clear(slot)

    def offload(self, parts: Collection[EnginePart]) -> None:
        """Free the memory of these parts."""
        if "weights" in parts:
            self._weights.offload()
        if "kv_cache" in parts:
            self._cache.free()
            self._sampler.free()
            free_cache(self._device)

    def reload(self, parts: Collection[EnginePart]) -> None:
        """Undo :meth:`offload`; the cache comes back empty."""
        if "weights" in parts:
            self._weights.reload()
        if "kv_cache" in parts:
            with torch.inference_mode():
                self._cache.restore()
            self._sampler.restore()

    def _forward(self, plan: Plan) -> Tensor:
        """Hidden states (R, H)."""
        table = np.zeros((3, plan.rows), np.int64)
        table[0] = plan.ids
        table[1] = self._config.max_batch
        for run in plan.runs:
            table[1, run.rows] = run.slot
            table[2, run.rows] = run.start + np.arange(len(run.rows))
        longest = int(table[2].max()) + 1
        self._cache.ensure(self._span(longest), self._spans[-1])
        ids, slots, positions = torch.from_numpy(table).to(self._device)
        step = StepAttention(
            cache=self._cache,
            slots=slots,
            positions=positions,
            decode_mask=self._decode_mask(plan),
            chunks=self._chunks(plan, positions),
        )
        output = self._model.base_model(
            input_ids=ids[:, None], position_ids=positions[:, None], use_cache=False, step=step
        )
        hidden: Tensor = output.last_hidden_state
        return hidden[:, 0]

    def _sample(self, hidden: Tensor, plan: Plan) -> dict[int, Sampled]:
        slots = self._config.max_batch if self._config.batch_invariant else max(plan.sampled) + 1
        last = np.zeros(slots, np.int64)
        draws = [IDLE] * slots
        for run in plan.runs:
            if run.slot in plan.sampled:
                last[run.slot] = run.rows[-1]
                draws[run.slot] = _draw(plan.sampled[run.slot])
        rows = hidden.index_select(0, torch.from_numpy(last).to(self._device))
        drawn = self._sampler(self._model.get_output_embeddings()(rows), draws)
        tokens, logprobs = torch.stack([drawn.tokens.double(), drawn.logprobs]).cpu().tolist()
        return {slot: Sampled(int(tokens[slot]), logprobs[slot]) for slot in plan.sampled}

    def _decode_mask(self, plan: Plan) -> Tensor | None:
        if not plan.decode:
            return None
        lengths = np.ones(max(run.slot for run in plan.decode) + 1, np.int64)
        for run in plan.decode:
            lengths[run.slot] = run.start + 1
        span = self._span(int(lengths.max()))
        return length_mask(torch.from_numpy(lengths).to(self._device), span, self._model.dtype)

    def _chunks(self, plan: Plan, positions: Tensor) -> list[Chunk]:
        chunks = []
        for run in plan.chunks:
            rows = torch.from_numpy(run.rows).to(self._device)
            span = self._span(run.start + len(run.rows))
            mask = length_mask(positions[rows] + 1, span, self._model.dtype)
            chunks.append(Chunk(rows=rows, slot=run.slot, mask=mask))
        return chunks

    def _span(self, length: int) -> int:
        return next(span for span in self._spans if span >= length)

    def _usable_spans(self, geometry: Geometry, weight: Tensor) -> list[int]:
        if not self._config.batch_invariant:
            return all_spans(self.context)
        with torch.inference_mode(), sdpa_kernel(_KERNELS):
            spans = exact_spans(geometry, self.context, weight)
        if not spans or spans[-1] < self.context:
            raise EnvironmentProblem(
                f"the attention kernel of {weight.device} does not give a row the same bits alone "
                "and among others",
                fix="set engine.batch_invariant=false",
            )
        return spans

    def _check_supported(self, spec: ModelSpec) -> None:
        if spec.head != "lm":
            raise EnvironmentProblem(
                f"local/engine cannot serve {spec.name!r}: a value model samples nothing",
                fix="serve a model with head lm",
            )
        settings = self._model.config
        kinds = set(getattr(settings, "layer_types", None) or ["full_attention"])
        if settings.model_type not in _MODEL_TYPES or kinds != {"full_attention"}:
            raise EnvironmentProblem(
                f"local/engine cannot serve {spec.name!r}: model type {settings.model_type}, "
                f"layers {', '.join(sorted(kinds))}",
                fix=f"use a model of type {', '.join(_MODEL_TYPES)} with full attention",
            )


def _draw(job: Job) -> Draw:
    request = job.request
    return Draw(request.sampling, uniform(request.seed, request.sampled_before + len(job.ids)))


def _geometry(settings: Any) -> Geometry:
    heads = int(settings.num_attention_heads)
    return Geometry(
        layers=int(settings.num_hidden_layers),
        query_heads=heads,
        key_heads=int(settings.num_key_value_heads),
        head_size=int(getattr(settings, "head_dim", None) or settings.hidden_size // heads),
    )
