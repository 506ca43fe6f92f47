"""The SGLang process of ``sglang_rollout.py``: it can also send requests to SGLang by itself, which
is what SGLang does without axisrl.

It is started by that script.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import NamedTuple

from axisrl_sglang.host import main
from axisrl_sglang.serving import Serving


class Job(NamedTuple):
    """Model calls of which each goes on from the one before."""

    prompt: list[int]
    observations: list[list[int]]
    """What is added to the context between two calls."""
    tokens: int
    """Sampled in each call."""


class Done(NamedTuple):
    """What the jobs took."""

    sampled: int
    context: int
    """Tokens of all prompts and observations."""
    seconds: float


class RawServing(Serving):
    """Adds a method that measures."""

    async def raw(self, jobs: Sequence[Job], concurrency: int) -> tuple[int, int, float]:
        """Do all jobs, so many at once; a ``Done``, whose class is another one over there."""
        slots = asyncio.Semaphore(concurrency)

        async def one(number: int, job: Job) -> int:
            async with slots:
                ids, sampled = list(job.prompt), 0
                for turn, observation in enumerate([*job.observations, []]):
                    new = await self._raw_call(f"raw-{number:08d}-{turn};", ids, job.tokens, number)
                    sampled += len(new)
                    ids += [*new, *observation]
                return sampled

        start = time.perf_counter()
        counts = await asyncio.gather(*(one(n, job) for n, job in enumerate(jobs)))
        seconds = time.perf_counter() - start
        context = sum(len(job.prompt) + sum(map(len, job.observations)) for job in jobs)
        return sum(counts), context, seconds

    async def _raw_call(self, rid: str, ids: list[int], tokens: int, seed: int) -> list[int]:
        request = self._io.GenerateReqInput(
            rid=rid,
            input_ids=list(ids),
            sampling_params={
                "temperature": 1.0,
                "max_new_tokens": tokens,
                "stop_token_ids": [],
                "sampling_seed": seed,
            },
            return_logprob=True,
            stream=False,
        )
        outputs = [out async for out in self._manager.generate_request(request, None)]
        return list(outputs[-1]["output_ids"])


if __name__ == "__main__":
    main(RawServing())
