"""How far SGLang's log-probabilities of sampled tokens are from transformers' and the local
engine's, on the same weights.

Run: python benchmarks/sglang_logprobs.py --model smollm2-135m --dtype float32 bfloat16
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch

from axisrl.plugins.manager import PluginManager
from axisrl.runtime.chat import load_tokenizer
from axisrl.types import (
    BuildContext,
    FloatArray,
    GenerateRequest,
    GenerateResult,
    ModelSpec,
    SamplingParams,
)
from axisrl_local.config import EngineConfig as LocalConfig
from axisrl_local.engine import LocalEngine
from report import markdown_row, today, versions
from setting import model_folder
from sglang_parts import PORTABLE, requests, serving


def main() -> None:
    """Print a row for each type and temperature."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--cache", type=Path, default=Path("~/.cache/axisrl").expanduser())
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--temperature", nargs="+", type=float, default=[1.0, 0.7])
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=128)
    args = parser.parse_args()
    path = model_folder(args.model, PluginManager.discover(), args.cache)
    for dtype in args.dtype:
        model = ModelSpec(name=args.model, path=path, dtype=dtype, device="cuda")
        with tempfile.TemporaryDirectory() as work:
            asyncio.run(_compare(args, model, Path(work)))
    print(versions(("torch", "sglang", "transformers")))


async def _compare(args: argparse.Namespace, model: ModelSpec, work: Path) -> None:
    tokenizer = load_tokenizer(model.path)
    prompts = [
        tokenizer.encode(f"Question {n}: tell me of {n} things.") for n in range(args.prompts)
    ]
    options = {"max_context": 512, "sglang": {**PORTABLE, "mem_fraction_static": 0.3}}
    sampled = {}
    async with serving(model, work, options) as engine:
        for temperature in args.temperature:
            asked = requests(
                prompts, SamplingParams(max_tokens=args.tokens, temperature=temperature)
            )
            results = await asyncio.gather(*(engine.generate(request) for request in asked))
            sampled[temperature] = (asked, results)
    local = LocalEngine(LocalConfig(max_context=512), BuildContext(run_dir=work))
    await local.start(model)
    net = _transformers(model)
    for temperature, (asked, results) in sampled.items():
        ours = np.concatenate([result.logprobs for result in results])
        theirs = np.concatenate(
            [_forward(net, a, r, temperature) for a, r in zip(asked, results, strict=True)]
        )
        locals_ = np.concatenate(
            [await _score(local, a, r, temperature) for a, r in zip(asked, results, strict=True)]
        )
        row = [today(), torch.cuda.get_device_name(), args.model, model.dtype, str(temperature)]
        row.append(f"{len(ours):,}")
        row += [_difference(ours, theirs), _difference(ours, locals_), _difference(theirs, locals_)]
        print(markdown_row(row), flush=True)
    await local.stop()


def _transformers(model: ModelSpec) -> Any:
    from transformers import AutoModelForCausalLM

    dtype = getattr(torch, model.dtype)
    return AutoModelForCausalLM.from_pretrained(model.path, dtype=dtype).to("cuda").eval()


@torch.no_grad()
def _forward(
    net: Any, asked: GenerateRequest, result: GenerateResult, temperature: float
) -> FloatArray:
    ids = torch.tensor(np.concatenate([asked.prompt_ids, result.ids]), device="cuda").long()
    logits = net(ids[None]).logits[0, len(asked.prompt_ids) - 1 : -1].float() / temperature
    logprobs = torch.log_softmax(logits, -1).gather(1, ids[len(asked.prompt_ids) :, None])
    return np.asarray(logprobs[:, 0].cpu().numpy(), np.float32)


async def _score(
    local: LocalEngine, asked: GenerateRequest, result: GenerateResult, temperature: float
) -> FloatArray:
    ids = np.concatenate([asked.prompt_ids, result.ids]).astype(np.int32)
    return (await local.score(ids, temperature))[len(asked.prompt_ids) - 1 :]


def _difference(left: FloatArray, right: FloatArray) -> str:
    gap = np.abs(left - right)
    return f"{gap.mean():.2g} / {gap.max():.2g}"


if __name__ == "__main__":
    main()
