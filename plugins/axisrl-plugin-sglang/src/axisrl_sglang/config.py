"""Options of the engine. Imports neither torch nor SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from axisrl.config.base import Config
from axisrl.config.use import above_zero

OWNED = {
    "model_path": "it is model.name",
    "tokenizer_path": "token ids go in and out",
    "skip_tokenizer_init": "token ids go in and out",
    "dtype": "it is model.dtype",
    "context_length": "it is engine.max_context",
    "random_seed": "it is the run's seed",
    "enable_deterministic_inference": "it is engine.seeded",
    "custom_weight_loader": "the engine has one, which verifies what it loads",
    "weight_version": "it counts the run's weight updates",
    "enable_memory_saver": "it is engine.hand_over",
    "enable_weights_cpu_backup": "it is engine.hand_over",
    "enable_return_routed_experts": "it is rollout.routing",
    "enable_lora": "it is engine.lora",
    "max_lora_rank": "it is engine.lora.rank",
    "lora_target_modules": "it is engine.lora.targets",
    "lora_paths": "adapters come from the trainer",
    "incremental_streaming_output": "the engine reads whole outputs",
    "dp_size": "replicas are placement.engines",
    "nnodes": "it is placement.engine_nodes",
    "node_rank": "it follows from placement.engine_nodes",
    "dist_init_addr": "machines agree on one when they start",
}
"""SGLang's server arguments that the engine sets itself, and where to say what they should be."""

_LOSSLESS = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
"""At 1, which they are by default, the tokens accepted are as if drawn from the model itself."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LoraOptions(Config):
    """Adapters that the engine makes room for."""

    rank: int = 16
    """Largest rank: the trainer's ``lora.rank``, or more."""
    targets: tuple[str, ...] = (
        "q_proj",
        "k_proj",
        "v_proj",
        "o_proj",
        "gate_proj",
        "up_proj",
        "down_proj",
    )
    """Last names of the modules that adapters may act on: at least the trainer's."""

    def __post_init__(self) -> None:
        if self.rank < 1 or not self.targets:
            raise ValueError(f"rank {self.rank} must be >= 1, and targets must not be empty")


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineConfig(Config):
    """Options of ``sglang/engine``."""

    max_context: int | None = None
    """Most tokens of a prompt and its answer; null is what the model allows."""
    seeded: bool = True
    """A request's tokens follow from its seed, whatever else runs (SGLang's deterministic
    inference: batch-invariant kernels). False is faster, and ignores seeds: no two runs are
    alike, and a resumed request draws anew."""
    verify_weights: bool = True
    """After an update every value served is compared with the value received, and every parameter
    must have got one. False only checks what arrived: for models whose SGLang class rearranges
    weights while it loads them."""
    hand_over: bool = False
    """Its memory can be handed over to a trainer on the same GPU and taken back (SGLang's memory
    saver). Weights that are away are kept in the machine's memory."""
    fp8: bool = False
    """Serve linear layers in FP8 (e4m3, blocks of 128 x 128): weights come as the trainer has them
    and are quantised on the engine's GPU. Half the memory, faster decoding, other
    log-probabilities: mind the mismatch with the trainer."""
    fp8_skip: tuple[str, ...] = ()
    """Modules that ``fp8`` leaves in the model's type, by their last name (``o_proj``) or their
    place (``model.layers.0``); the parts of a fused one together: ``[q_proj, k_proj, v_proj]``."""
    lora: LoraOptions | None = None
    """Take low-rank adapters as they are (``trainer.lora.update: adapter``) and serve them beside
    the base weights. Full weights cannot be taken then."""
    start_timeout_s: float = 900.0
    """Longest time for SGLang to load the model and compile what it compiles."""
    stop_timeout_s: float = 60.0
    """Longest time for it to end by itself; then it is killed."""
    answer_timeout_s: float = 300.0
    """SGLang that answers nothing for so long, not even whether it is alive, is ended and counts as
    gone. Kernels that are compiled for a first request may take a minute or two."""
    sglang: Mapping[str, Any] = field(default_factory=dict)
    """Any of SGLang's server arguments by its name in ``ServerArgs``, such as ``tp_size: 2``,
    ``mem_fraction_static: 0.6`` or ``attention_backend: triton``. Names and simple types are
    checked against the SGLang installed."""

    def __post_init__(self) -> None:
        if self.max_context is not None and self.max_context < 2:
            raise ValueError(f"max_context {self.max_context} must be >= 2, or null")
        above_zero(
            start_timeout_s=self.start_timeout_s,
            stop_timeout_s=self.stop_timeout_s,
            answer_timeout_s=self.answer_timeout_s,
        )
        if self.fp8_skip and not self.fp8:
            raise ValueError("fp8_skip has no effect without fp8")
        if self.fp8 and "quantization" in self.sglang:
            raise ValueError("sglang.quantization cannot be set beside fp8: it is fp8's")
        if self.fp8 and self.lora:
            raise ValueError(
                "fp8 and lora cannot be combined: SGLang cannot load blocks under lora"
            )
        for name in sorted(self.sglang.keys() & OWNED.keys()):
            raise ValueError(f"sglang.{name} cannot be set: {OWNED[name]}")
        for name in _LOSSLESS:
            if self.sglang.get(name, 1) != 1:
                raise ValueError(
                    f"sglang.{name} {self.sglang[name]} must be 1: otherwise tokens are accepted "
                    "that the model would not have drawn, and their log-probabilities are another "
                    "distribution's"
                )
        if self.sglang.get("speculative_algorithm") and self.seeded:
            raise ValueError(
                "sglang.speculative_algorithm cannot be set with seeded: SGLang draws speculated "
                "tokens without the requests' seeds; set seeded to false"
            )
