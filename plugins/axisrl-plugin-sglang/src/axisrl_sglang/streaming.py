"""Requests with stop strings: their tokens are looked at as they come, and the request is ended.

SGLang runs without a tokenizer, so it does not see strings.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

from axisrl.runtime.chat import ChatTokenizer
from axisrl.runtime.stopping import StopRule
from axisrl.types import GenerateRequest
from axisrl_sglang.messages import Ask, Output
from axisrl_sglang.process import HostProcess


async def until_string(
    process: HostProcess, tokenizer: ChatTokenizer, request: GenerateRequest, ask: Ask
) -> Output:
    """Stream, and end the request at the token that completes a stop string."""
    before = request.prompt_ids[len(request.prompt_ids) - request.sampled_before :].tolist()
    decode = partial(tokenizer.decode, skip_special=False)
    rule = StopRule(frozenset(), request.sampling.stop, decode, before)
    outputs: list[Output] = []
    seen, ends = 0, 0
    stopping: asyncio.Task[Any] | None = None

    def part(value: list[int] | Output) -> None:
        nonlocal seen, ends, stopping
        if isinstance(value, Output):
            outputs.append(value)
            value = value.ids[seen:]
        for token in value:
            seen += 1
            if not ends and rule.stops(token):
                ends = seen
        if ends and not outputs and stopping is None:
            stopping = asyncio.ensure_future(process.call("abort", ask.rid))

    await process.call("stream", ask, part=part)
    if stopping is not None:
        await stopping
    (output,) = outputs
    if ends:
        return output._replace(
            ids=output.ids[:ends], logprobs=output.logprobs[:ends], finish="stop"
        )
    return output
