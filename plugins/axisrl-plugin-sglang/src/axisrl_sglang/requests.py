"""Checks requests and translates their sampling parameters into SGLang's."""

from __future__ import annotations

from typing import Any

from axisrl.errors import EngineFailure
from axisrl.runtime.requests import check_sampling
from axisrl.types import GenerateRequest, SamplingParams


def check_request(request: GenerateRequest, *, context: int, vocabulary: int) -> None:
    """Raise ``EngineFailure`` for what SGLang would refuse, or fail at with others in its batch."""
    prompt = request.prompt_ids
    refused = f"request {request.id!r} is refused: "
    if prompt.ndim != 1 or not len(prompt):
        raise EngineFailure(
            f"{refused}the prompt has shape {prompt.shape}", fix="send one or more token ids"
        )
    if len(prompt) >= context:
        raise EngineFailure(
            f"{refused}the prompt has {len(prompt)} tokens of a context of {context}",
            fix="raise engine.max_context, or send fewer tokens",
        )
    if int(prompt.min()) < 0 or int(prompt.max()) >= vocabulary:
        raise EngineFailure(
            f"{refused}the prompt has an id outside the vocabulary of {vocabulary}",
            fix="use the tokenizer of the served model",
        )
    check_sampling(request)


def is_certain(sampling: SamplingParams) -> bool:
    """Only one token can be drawn, and the distribution says so. (A greedy request's does not: its
    log-probabilities are of the softmax.)"""
    return sampling.temperature > 0 and sampling.top_k == 1


def is_masked(sampling: SamplingParams) -> bool:
    """Some tokens cannot be drawn, which SGLang's plain log-probabilities do not know."""
    limited = sampling.top_k > 1 or sampling.top_p < 1 or sampling.min_p > 0
    return sampling.temperature > 0 and sampling.top_k != 1 and limited


def sampling_parameters(sampling: SamplingParams, *, vocabulary: int) -> dict[str, Any]:
    """Temperature and masks. SGLang tells log-probabilities under a mask where top_k is finite."""
    if sampling.temperature == 0:
        return {"temperature": 0.0}
    parameters: dict[str, Any] = {"temperature": sampling.temperature}
    if is_masked(sampling):
        parameters |= {"top_p": sampling.top_p, "min_p": sampling.min_p, "top_k": vocabulary}
    if sampling.top_k > 0:
        parameters["top_k"] = min(sampling.top_k, vocabulary)
    return parameters
