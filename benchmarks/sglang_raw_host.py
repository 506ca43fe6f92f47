"""The SGLang process of ``sglang_rollout.py``: it can also send requests to SGLang by itself, which
is what SGLang does without axisrl.

It is started by that script.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from axisrl_sglang.host import main
from axisrl_sglang.serving import Serving


class RawServing(Serving):
    """Adds a method that measures."""

    async def raw(
        self, prompts: Sequence[list[int]], sampling: Mapping[str, Any], concurrency: int
    ) -> tuple[int, float]:
        """Tokens sampled and seconds taken for all prompts, so many at once."""
        slots = asyncio.Semaphore(concurrency)

        async def one(number: int) -> int:
            async with slots:
                request = self._io.GenerateReqInput(
                    rid=f"raw-{number:08d};",
                    input_ids=prompts[number],
                    sampling_params={**sampling, "sampling_seed": number},
                    return_logprob=True,
                    stream=False,
                )
                outputs = [out async for out in self._manager.generate_request(request, None)]
                return len(outputs[-1]["output_ids"])

        start = time.perf_counter()
        counts = await asyncio.gather(*(one(number) for number in range(len(prompts))))
        return sum(counts), time.perf_counter() - start


if __name__ == "__main__":
    main(RawServing())
