"""Experts that SGLang's router chose: what a model has, what can be asked, what an answer tells.

SGLang keeps them by KV slot, so a cached prefix has those it was computed with. It tells them when
a request is over: of the tokens from ``routed_experts_start_len`` to the last but one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from axisrl.errors import ConfigError, EngineFailure, EnvironmentProblem
from axisrl.types import GenerateRequest, ModelSpec, Payload
from axisrl_sglang.messages import Experts, Output

ARGUMENT = "enable_return_routed_experts"
_COUNTS = ("num_experts", "n_routed_experts", "num_local_experts", "moe_num_experts")
_REFUSED = {
    "speculative_algorithm": "the tokens it verifies overrun SGLang's buffer of experts",
    "pp_size": "each stage knows the experts of its own layers alone",
    "chunked_prefill_size": "SGLang's buffer of experts has the size of a chunk",
}


def experts_of(model: ModelSpec) -> Experts:
    """From the model's config.json. Raises ``EnvironmentProblem`` for one without experts."""
    config = json.loads((model.path / "config.json").read_text(encoding="utf-8"))
    text: Mapping[str, Any] = config.get("text_config") or config
    count = next((text[name] for name in _COUNTS if text.get(name)), 0)
    top_k = text.get("num_experts_per_tok") or 0
    if not (count and top_k):
        raise EnvironmentProblem(
            f"rollout.routing: the model {model.name} has no experts to choose from",
            fix="set rollout.routing=false, or train a mixture of experts",
        )
    return Experts(int(text["num_hidden_layers"]), int(top_k), int(count))


def check_capturing(given: Mapping[str, Any], known: Mapping[str, Any], folder: Path) -> None:
    """Raise ``ConfigError`` for server arguments under which SGLang does not tell all experts, and
    ``EnvironmentProblem`` when the SGLang in ``folder`` (arguments ``known``) never does."""
    if ARGUMENT not in known:
        raise EnvironmentProblem(
            f"rollout.routing: the SGLang in {folder} does not tell the experts it chose",
            fix="pip install 'axisrl-plugin-sglang[sglang]'",
        )
    wrong = {
        "speculative_algorithm": given.get("speculative_algorithm") is not None,
        "pp_size": given.get("pp_size", 1) > 1,
        "chunked_prefill_size": (given.get("chunked_prefill_size") or 1) < 0,
    }
    for name in (name for name, is_wrong in wrong.items() if is_wrong):
        raise ConfigError(
            f"engine.sglang.{name}: {given[name]!r} cannot be used with rollout.routing: "
            f"{_REFUSED[name]}",
            fix=f"leave engine.sglang.{name} out, or set rollout.routing=false",
        )


def unpacked(encoded: str, experts: Experts) -> Payload:
    """SGLang's base64 of int32 as (tokens, layers, top_k): uint8, or int16 for over 256 experts."""
    told = np.frombuffer(base64.b64decode(encoded), np.int32)
    dtype = np.uint8 if experts.choices <= 256 else np.int16
    return told.reshape(-1, experts.layers, experts.top_k).astype(dtype)


def fitted(request: GenerateRequest, output: Output) -> Output:
    """The output with the experts of its own tokens and no more. An aborted one is cut where they
    end; raises ``EngineFailure`` for another that lacks some."""
    if request.routing_from is None or not output.ids:
        return output._replace(routing=None)
    if output.routing is not None and _is_blank(output.routing):
        raise EngineFailure(
            "SGLang told expert 0 for everything: its kernels choose without telling",
            fix="leave engine.sglang.moe_runner_backend at auto, or set it to triton",
        )
    before = len(request.prompt_ids) - 1 - request.routing_from
    told = 0 if output.routing is None else len(output.routing)
    missing = before + len(output.ids) - told
    if missing > 0 and output.finish != "abort":
        raise EngineFailure(f"SGLang told no experts of {missing} tokens of {request.id!r}")
    kept = max(0, len(output.ids) - max(0, missing))
    if output.routing is None or not kept:
        return output._replace(ids=[], logprobs=[], routing=None)
    return output._replace(
        ids=output.ids[:kept],
        logprobs=output.logprobs[:kept],
        routing=output.routing[: before + kept],
    )


def _is_blank(routing: Payload) -> bool:
    """No token chose anything but expert 0, which of several is impossible."""
    return bool(routing.size) and routing.shape[2] > 1 and not routing.any()
