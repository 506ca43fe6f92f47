"""Data contracts between the parts of axisrl: frozen dataclasses with documented shapes.

Arrays are numpy (int32 ids and versions, float32 logprobs); torch appears only in
:mod:`axisrl.protocols.loss`.
The token tree itself is :mod:`axisrl.trace`. Nothing here does I/O.

Shape suffixes: ``T`` tokens of one row, ``N`` tokens of one packed batch, ``R`` rows of one packed
batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]
BoolArray = NDArray[np.bool_]
Payload = NDArray[Any]

Role = Literal["system", "user", "assistant", "tool"]
FinishReason = Literal["stop", "length", "abort"]
Aggregation = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum_norm"]


class Outcome(StrEnum):
    """How a rollout ended. Only the first three are the policy's own doing and are trained on."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    POLICY_ERROR = "policy_error"
    ENV_ERROR = "env_error"
    VERIFIER_ERROR = "verifier_error"
    ENGINE_ERROR = "engine_error"
    HARNESS_ERROR = "harness_error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def trainable(self) -> bool:
        """True when the policy is answerable for the result; the others leave statistics and
        denominators."""
        return self in (Outcome.COMPLETED, Outcome.TRUNCATED, Outcome.POLICY_ERROR)


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call the policy asked for. ``arguments`` is parsed JSON and stays data: nothing evaluates
    it."""

    id: str
    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One chat message. Text only labels what happened; the tokens of record are in the trace."""

    role: Role
    content: str
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()

    def to_chat(self) -> dict[str, Any]:
        """The dict a chat template takes; absent fields are left out."""
        chat: dict[str, Any] = {"role": self.role, "content": self.content}
        if self.name is not None:
            chat["name"] = self.name
        if self.tool_call_id is not None:
            chat["tool_call_id"] = self.tool_call_id
        if self.tool_calls:
            chat["tool_calls"] = [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": dict(call.arguments)},
                }
                for call in self.tool_calls
            ]
        return chat


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One problem. ``data`` is JSON; envs and verifiers read their fields from it and raise when
    one is missing."""

    id: str
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What the policy sees next.

    ``messages`` are appended to the conversation. With ``replace`` they *are* the conversation from
    here on (compaction, stripped thoughts): the trace branches instead of pretending the history
    was always so.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    replace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Action:
    """What the policy did in one turn: the decoded text of the sampled tokens (special tokens
    skipped)."""

    text: str
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The environment's answer to an action. ``observation`` is required unless ``done`` or
    ``truncated``."""

    observation: Observation | None = None
    reward_parts: Mapping[str, float] = field(default_factory=dict)
    done: bool = False
    truncated: bool = False
    policy_error: str | None = None
    """Set when the policy broke the rules (unparsable call, out of budget); ends up as
    Outcome.POLICY_ERROR if done."""
    info: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn. ``temperature`` 0 is greedy; ``top_k`` 0, ``top_p`` 1 and ``min_p`` 0
    are off."""

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    max_tokens: int = 256
    """Most tokens of one model call."""
    stop: tuple[str, ...] = ()
    """Generation ends once the decoded text contains one of these; the tokens stay in the
    result."""
    stop_token_ids: tuple[int, ...] = ()
    """In addition to the model's own end-of-turn tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateRequest:
    """Token ids in. ``seed`` and ``sampled_before`` make a resumed request draw what the whole one
    would have drawn:
    the random number of the i-th sampled token depends on (seed, i) alone."""

    id: str
    prompt_ids: IntArray
    sampling: SamplingParams
    seed: int
    sampled_before: int = 0
    """Tokens of this model call that ``prompt_ids`` already ends with (partial rollout);
    ``max_tokens`` counts them."""
    session: str = ""
    """Requests of one rollout share it, so that a router can keep them on one replica's prefix
    cache."""
    routing_from: int | None = None
    """Place in ``prompt_ids`` of the first token whose experts are wanted, with those of every
    later one; None asks for none (:mod:`axisrl.runtime.routing`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerateResult:
    """Token ids out, label-aligned with nothing: entry i describes the i-th *sampled* token."""

    ids: IntArray
    logprobs: FloatArray
    """Log-probability of each sampled token under the distribution it was drawn from (temperature
    and masks applied)."""
    versions: IntArray
    """Weight version that sampled each token."""
    finish_reason: FinishReason
    cached_tokens: int = 0
    passes: int = 0
    """Forward passes of the model in which they were sampled, with speculative decoding fewer than
    tokens; 0 where the engine does not tell."""
    routing: tuple[Handle, ...] = ()
    """Experts the router chose for the tokens from ``routing_from`` to the last but one, in order:
    arrays (tokens, layers, top_k). The last token has not been through the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handle:
    """A name for an array in a store; small, picklable, JSON. ``rows`` reads a slice of the first
    axis."""

    store: str
    key: str
    shape: tuple[int, ...]
    dtype: str
    owner: str
    checksum: int
    """CRC-32 of the whole array's bytes, checked on read of the whole."""
    rows: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreStats:
    """What a handle store holds now."""

    items: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorMeta:
    """Name, shape and dtype of one weight, in Hugging Face naming."""

    name: str
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdate:
    """New weights on offer. The receiver loads them, recomputes ``checksum`` over what it now
    serves and echoes both."""

    version: int
    transport: Literal["shared_memory", "cuda_ipc", "nccl", "disk"]
    location: str
    """A path for ``shared_memory`` and ``disk``; a rendezvous address otherwise."""
    tensors: tuple[TensorMeta, ...]
    checksum: str
    adapter: AdapterMeta | None = None
    """Set when ``tensors`` are a low-rank adapter on the weights that version 0 served."""
    receivers: int = 1
    """How many are brought to this version at once: ``nccl`` sends to all of them together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterMeta:
    """A low-rank adapter (LoRA, arXiv 2106.09685): each target's weight is W + ``scale`` B A.

    Its tensors are named ``<module>.lora_A.weight`` (rank, in) and ``<module>.lora_B.weight``
    (out, rank), where ``<module>.weight`` is the Hugging Face name of the weight adapted.
    """

    rank: int
    scale: float
    """alpha / rank."""
    targets: tuple[str, ...]
    """Names of the modules adapted, in the order of the model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightAck:
    """An engine's echo after an update; both fields must equal the update's."""

    version: int
    checksum: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model on disk: a folder with config.json, tokenizer files and safetensors."""

    name: str
    path: Path
    dtype: Literal["float32", "bfloat16", "float16"] = "float32"
    device: str = "auto"
    """``auto`` is cuda when there is one, else cpu."""
    head: Literal["lm", "value"] = "lm"
    """What stands on the body: the model's own output layer, or a value head (linear, hidden to 1,
    with bias) made from the run's seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """One trainer's place among those that train one model together."""

    rank: int
    """From 0."""
    size: int
    rendezvous: str
    """``host:port`` where they meet; rank 0 listens there."""
    timeout_s: float = 300.0
    """Longest wait for another rank."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """What part of every global batch a trainer rank passes through its model: ranks that divide a
    model among themselves have the same one."""

    index: int
    """The batches whose ``rank`` it is are this trainer's."""
    count: int
    """Into how many parts a global batch is packed."""
    speaks: bool = True
    """True of one rank of each share: it hands on what the share computed."""
    whole: bool = True
    """It has the whole model: rank 0 can offer and save weights alone."""
    divides_state: bool = False
    """True where ranks with the whole model divide the optimizer's state: all are asked to save."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A verifier's judgement. ``score`` None means it could not judge: that needs ``error`` and is
    never reward 0."""

    score: float | None
    passed: bool = False
    detail: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardResult:
    """``total`` is what the rollout earned; ``parts`` are logged.

    ``per_turn``, when given, has one entry a model call: what was earned there. What they leave of
    ``total`` is earned at the end.
    """

    total: float
    parts: Mapping[str, float] = field(default_factory=dict)
    per_turn: tuple[float, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSummary:
    """What the driver knows about a rollout: ids, counts, scores and one handle. At most 1 KiB
    pickled."""

    id: str
    task_id: str
    group: int
    """Number of the group in dispatch order; canonical order of a window whatever finished
    first."""
    member: int
    outcome: Outcome
    reward: float | None
    parts: Mapping[str, float] = field(default_factory=dict)
    passed: bool = False
    turns: int = 0
    sampled_tokens: int = 0
    prompt_tokens: int = 0
    versions: tuple[int, int] = (0, 0)
    """Oldest and newest weight version among the sampled tokens."""
    trace: Handle | None = None
    """:meth:`axisrl.trace.Trace.to_bytes` as uint8."""
    record: Handle | None = None
    """Messages and verdicts as JSON bytes (:mod:`axisrl.runtime.records`)."""
    turn_rewards: Handle | None = None
    """float32[turns], where the reward gave ``per_turn``."""
    routing: Handle | None = None
    """Experts of the rollout's tokens (:mod:`axisrl.runtime.routing`)."""
    error: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """How a rollout's trained tokens and its reward lie over its model calls, first call first."""

    tokens: tuple[int, ...]
    """Trained tokens of each turn."""
    rewards: FloatArray
    """float32[turns]; they sum to the rollout's reward. Without ``RewardResult.per_turn`` all of it
    is earned at the last turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """What a value model expects of a rollout, before any update of the window."""

    tokens: FloatArray
    """float32[trained tokens]: entry t is V of the state that trained token t was sampled in, in
    the order they were sampled."""
    last: float
    """V of the state after the last trained token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutGroup:
    """Usable rollouts of one task, in member order; what an advantage is computed from."""

    group: int
    task_id: str
    members: tuple[RolloutSummary, ...]
    turns: tuple[Turns, ...] = ()
    """One a member; an advantage always gets them, the driver never has them."""

    @property
    def rewards(self) -> FloatArray:
        """float32[members]."""
        return np.asarray([member.reward for member in self.members], dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class AdvantageResult:
    """One entry a member; each is shape () (the same for all its trained tokens) or (trained
    tokens,), in the order they were sampled."""

    advantages: tuple[FloatArray, ...]
    returns: tuple[FloatArray, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row for the trainer, label-aligned: entry t describes the prediction of ``labels[t]``,
    the token after ``ids[t]``.

    All arrays are (T,). Values where ``loss_mask`` is False are meaningless and may be NaN.
    """

    trajectory: int
    """Rows of one rollout share it: "sequence" in every aggregation means trajectory, never row."""
    ids: IntArray
    labels: IntArray
    loss_mask: BoolArray
    advantages: FloatArray
    rollout_logprobs: FloatArray
    versions: IntArray
    temperature: FloatArray
    weights: FloatArray | None = None
    """Share of the global loss each token carries, denominators already applied
    (:mod:`axisrl.runtime.batch`)."""
    old_logprobs: FloatArray | None = None
    reference_logprobs: FloatArray | None = None
    """Under the frozen reference model, at the sampling temperature."""
    returns: FloatArray | None = None
    old_values: FloatArray | None = None
    experts_at: IntArray | None = None
    """Place of each of ``ids`` along the second axis of the array behind ``handles["routing"]``."""
    handles: Mapping[str, Handle] = field(default_factory=dict)
    """``routing``: experts of the rollout's tokens, (layers, tokens, top_k)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackBudget:
    """``max_tokens`` of one packed batch, and how many ranks must each get the same number of
    batches."""

    max_tokens: int
    ranks: int = 1
    whole_trajectories: bool = False
    """Rows of one trajectory share a batch even where together they are over ``max_tokens``: what
    is computed over a trajectory must see all of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedBatch:
    """Rows laid end to end. ``columns`` holds every per-token array of :class:`Sample` that is
    set, each (N,).

    Row r is ``[row_starts[r], row_starts[r + 1])``; ``rows[r]`` is its index in the packed list of
    samples;
    ``positions`` restart at 0 in each row. ``columns["trajectory"]`` (int32) repeats the sample's
    trajectory.
    """

    rank: int
    rows: tuple[int, ...]
    row_starts: IntArray
    positions: IntArray
    columns: Mapping[str, NDArray[Any]]
    handles: tuple[Mapping[str, Handle], ...] = ()
    """``Sample.handles`` of each row; empty where no row has any."""

    @property
    def tokens(self) -> int:
        """N."""
        return int(self.row_starts[-1])


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """A number on its way to a logger, mergeable: means by weight, extrema as extrema. Absent is
    absent, not 0."""

    value: float
    weight: float = 1.0
    reduce: Literal["mean", "sum", "min", "max"] = "mean"


@dataclass(frozen=True, slots=True, kw_only=True)
class StepStats:
    """What one optimizer step measured."""

    metrics: Mapping[str, Metric]
    tokens: int
    trained_tokens: int
    learning_rate: float
    grad_norm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutRow:
    """One line of ``rollouts/step-*.jsonl``: everything a person wants to read about a rollout."""

    step: int
    summary: RolloutSummary
    messages: tuple[Message, ...]
    advantage: float | None = None
    verdicts: Mapping[str, Verdict] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildContext:
    """What a component may know besides its own config. No globals: a test passes its own."""

    run_dir: Path
    seed: int = 0
    logger: logging.Logger = field(default_factory=lambda: logging.getLogger("axisrl"))
    clock: Callable[[], float] = time.monotonic
    services: Mapping[str, Any] = field(default_factory=dict)
    """Named services of the run; ``model`` (:class:`ModelSpec`) is always there inside a run.
    ``tokenizer`` is read when it is first asked for: ask in the constructor, no deadline runs."""

    def rng(self, *names: str | int) -> np.random.Generator:
        """A generator of its own for each name, from the run's seed."""
        words = [
            self.seed,
            *(n if isinstance(n, int) else int.from_bytes(n.encode(), "big") for n in names),
        ]
        return np.random.default_rng(words)
