"""What SGLang is started with: its server arguments, and what it needs as a part of one engine on
several machines.

Of the parts, that on the first machine is called. SGLang serves nothing on the others: it runs its
share of the model there and takes what it is to do from the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from axisrl.errors import ConfigError
from axisrl.types import ModelSpec
from axisrl_sglang.adapters import lora_arguments
from axisrl_sglang.blocks import block_arguments
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.messages import RESERVED
from axisrl_sglang.routing import ARGUMENT


class Part(NamedTuple):
    """Which part of an engine on ``parts`` machines this is."""

    number: int = 0
    parts: int = 1
    address: str = ""
    """Where they meet."""

    @property
    def arguments(self) -> dict[str, Any]:
        """SGLang's, for it."""
        if self.parts == 1:
            return {}
        return {"nnodes": self.parts, "node_rank": self.number, "dist_init_addr": self.address}

    @property
    def variables(self) -> Mapping[str, str]:
        """Environment variables of its process: without this one SGLang's ``Engine`` never returns
        where it does not serve."""
        return {"SGLANG_BLOCK_NONZERO_RANK_CHILDREN": "0"} if self.number else {}


def check_part(part: Part, config: EngineConfig) -> None:
    """Raise ``ConfigError`` for options that do not work over so many machines."""
    sizes = {name: int(config.sglang.get(name, 1)) for name in ("tp_size", "pp_size")}
    if sizes["tp_size"] * sizes["pp_size"] % part.parts:
        said = ", ".join(f"{name} {size}" for name, size in sizes.items())
        raise ConfigError(
            f"engine.sglang: the processes of {said} cannot be shared equally by "
            f"placement.engine_nodes {part.parts}",
            fix="set engine.sglang.tp_size to the GPUs of all machines together",
        )
    if config.lora is not None and part.parts > 1:
        raise ConfigError(
            "engine.lora: SGLang reads adapters from files of one machine, and "
            f"placement.engine_nodes {part.parts} puts it on {part.parts}",
            fix="leave engine.lora out: trainer.lora.update merged sends full weights",
        )


def server_values(
    config: EngineConfig, model: ModelSpec, *, seed: int, routing: bool, part: Part
) -> dict[str, Any]:
    """SGLang's server arguments by name; the same for every part but for what tells them apart."""
    arguments: dict[str, Any] = {
        "model_path": str(model.path),
        "skip_tokenizer_init": True,
        "dtype": model.dtype,
        "random_seed": seed % 2**31,
        "enable_deterministic_inference": config.seeded,
        "enable_memory_saver": config.hand_over,
        "enable_weights_cpu_backup": config.hand_over,
    }
    if routing:
        arguments[ARGUMENT] = True
    if config.max_context is not None:
        arguments["context_length"] = config.max_context + RESERVED
    if config.lora is not None:
        arguments |= lora_arguments(config.lora)
    arguments |= dict(config.sglang) | part.arguments
    if config.fp8:
        arguments |= block_arguments(config.sglang, config.fp8_skip)
    return arguments
