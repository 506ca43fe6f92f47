"""How far Megatron's log-probabilities of sampled tokens are from SGLang's on a mixture of experts:
with the experts that SGLang chose (R3, arXiv 2510.11370), and with those of its own router.

    python benchmarks/routing_replay.py --prompts 64 --tokens 256

One GPU, random weights in a published family's shape. SGLang samples and is stopped; then the same
tokens pass through the trainer twice. KL1 is the mean of engine - trainer over the sampled tokens,
KL3 the mean of exp(-D) - 1 + D; the largest difference of one token is beside them.

It trains nothing.
"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from axisrl.builtin.linear_packer import LinearPacker
from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.protocols import HandleStore, TrainerBackend
from axisrl.runtime.disagreement import ScoredTokens, measures
from axisrl.runtime.routing import ExpertsReader, joined_parts
from axisrl.runtime.trajectory import Trajectory
from axisrl.trace import Trace
from axisrl.types import (
    BuildContext,
    FloatArray,
    GenerateRequest,
    GenerateResult,
    ModelSpec,
    PackBudget,
    PackedBatch,
    SamplingParams,
)
from axisrl_megatron.config import MegatronConfig
from axisrl_megatron.trainer import MegatronTrainer
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.engine import SglangEngine
from report import table, versions
from sglang_parts import PORTABLE, drawn_folder, requests

_MAX_TOKENS = 8192


def main() -> None:
    """Print a row with replay and one without."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="qwen3-moe-1.3b")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--prompt", type=int, default=64, help="tokens of each prompt")
    parser.add_argument("--tokens", type=int, default=256, help="tokens sampled after each")
    parser.add_argument("--temperature", type=float, default=1.0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        rows = asyncio.run(_measure(args, Path(work)))
    print(table(["experts", "tokens", "KL1", "KL3", "mean |D|", "max |D|", "ratios"], rows))
    print(f"{args.shape}, {args.dtype}, {torch.cuda.get_device_name()}")
    print(versions(("torch", "sglang", "megatron-core", "transformers")))


async def _measure(args: argparse.Namespace, work: Path) -> list[list[str]]:
    model = drawn_folder(args.shape, work, args.dtype)
    store = MemoryHandleStore(NoConfig(), BuildContext(run_dir=work))
    prompts = np.random.default_rng(0).integers(0, 1000, (args.prompts, args.prompt))
    sampling = SamplingParams(max_tokens=args.tokens, temperature=args.temperature)
    asked = [
        dataclasses.replace(request, routing_from=0)
        for request in requests(prompts.tolist(), sampling)
    ]
    batches = await packed_rows(store, asked, await _sampled(model, store, work, asked))
    read = ExpertsReader(store)
    read.attach()
    rows = []
    for name in ("the trainer's", "SGLang's"):
        trainer = MegatronTrainer(MegatronConfig(), BuildContext(run_dir=work))
        if name == "SGLang's":
            trainer.replay_routing(read)
        await asyncio.to_thread(trainer.start, model, None)
        found = await asyncio.to_thread(differences, trainer, batches)
        rows.append([name, *cells(found)])
        trainer.stop()
        torch.cuda.empty_cache()
    return rows


async def _sampled(
    model: ModelSpec, store: HandleStore, work: Path, asked: Sequence[GenerateRequest]
) -> list[GenerateResult]:
    async def keep(values: Any) -> Any:
        return await store.put(values, owner="engine-0")

    options = {**PORTABLE, "max_total_tokens": 65536}
    engine = SglangEngine(
        EngineConfig(max_context=2048, sglang=options), BuildContext(run_dir=work)
    )
    engine.capture_routing(keep)
    await engine.start(model)
    try:
        return list(await asyncio.gather(*(engine.generate(request) for request in asked)))
    finally:
        await engine.stop()


async def packed_rows(
    store: HandleStore, asked: Sequence[GenerateRequest], results: Sequence[GenerateResult]
) -> Sequence[PackedBatch]:
    """What a trainer would be given of these calls, each its own rollout."""
    samples = []
    for number, (request, result) in enumerate(zip(asked, results, strict=True)):
        trace = Trace()
        root = trace.append("prompt", request.prompt_ids, parent=None)
        trace.append_sampled(result, parent=root, sampling=request.sampling, seed=request.seed)
        experts = await store.put(await joined_parts(store, result.routing), owner="worker")
        samples += Trajectory(trace, number, experts).samples
    packer = LinearPacker(NoConfig(), BuildContext(run_dir=Path()))
    return packer.pack(samples, PackBudget(max_tokens=_MAX_TOKENS))


def differences(trainer: TrainerBackend, batches: Sequence[PackedBatch]) -> dict[str, float]:
    """Of :mod:`axisrl.runtime.disagreement`, over all sampled tokens."""
    pairs = list(zip(batches, trainer.logprobs(batches), strict=True))
    engine = [batch.columns["rollout_logprobs"][batch.columns["loss_mask"]] for batch, _ in pairs]
    ours: list[FloatArray] = [said[batch.columns["loss_mask"]] for batch, said in pairs]
    zeros = np.zeros(sum(map(len, ours)), np.int64)
    return measures(
        ScoredTokens(
            engine=np.concatenate(engine).astype(np.float64),
            trainer=np.concatenate(ours).astype(np.float64),
            ids=zeros,
            positions=zeros,
            temperature=zeros.astype(np.float64),
            versions=zeros,
            rollouts=zeros,
        )
    )


def cells(found: dict[str, float]) -> list[str]:
    """Of a row, after its name."""
    numbers = [f"{found[name]:.3g}" for name in ("k1", "k3", "abs_mean", "abs_max")]
    ratios = f"{found['ratio_min']:.3g} to {found['ratio_max']:.3g}"
    return [f"{found['tokens']:,.0f}", *numbers, ratios]


if __name__ == "__main__":
    main()
