"""What no engine can run, whatever it serves with. Prompts that do not fit a model are its own
business."""

from __future__ import annotations

from axisrl.errors import EngineFailure
from axisrl.types import GenerateRequest


def check_sampling(request: GenerateRequest) -> None:
    """Raise ``EngineFailure`` for sampling parameters out of range, and for more tokens sampled
    before than the prompt has room for."""
    prompt, sampling = request.prompt_ids, request.sampling
    refused = f"request {request.id!r} is refused: "
    if not 0 <= request.sampled_before < len(prompt):
        raise EngineFailure(
            f"{refused}sampled_before {request.sampled_before} does not fit {len(prompt)} "
            "prompt ids",
            fix="the prompt of a resumed request ends with the tokens sampled before",
        )
    if sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or not 0 <= sampling.min_p < 1:
        raise EngineFailure(
            f"{refused}temperature {sampling.temperature}, top_p {sampling.top_p}, "
            f"min_p {sampling.min_p}",
            fix="temperature >= 0, 0 < top_p <= 1, 0 <= min_p < 1",
        )
