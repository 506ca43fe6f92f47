"""Speculative decoding and a scheduler that dies or hangs, with SGLang itself on a CUDA device.

Needs SmolLM2 (``axisrl models fetch smollm2-135m``). Two engines serve it, one guessing by n-grams
and one not; the last tests end them. What was measured is in the properties of ``--junitxml``.
"""

import asyncio
import importlib.util
import os
import signal
import time

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from axisrl.cli.paths import cache_root
from axisrl.errors import ActorGone
from axisrl.ops.checksum import weights_checksum
from axisrl.runtime.chat import load_tokenizer
from axisrl.types import BuildContext, GenerateRequest, ModelSpec, SamplingParams
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.engine import SglangEngine
from axisrl_sglang.messages import Weights

MODEL = cache_root() / "smollm2-135m"
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(importlib.util.find_spec("sglang") is None, reason="needs SGLang"),
    pytest.mark.skipif(not MODEL.is_dir(), reason="needs axisrl models fetch smollm2-135m"),
]
SERVER = {
    "attention_backend": "triton",
    "grammar_backend": "none",
    "mem_fraction_static": 0.3,
    "max_total_tokens": 65536,
    "max_running_requests": 64,
    "cuda_graph_backend_prefill": "disabled",
    "cuda_graph_max_bs_decode": 64,
}
NGRAM = {"speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 8}
LINE = "The quick brown fox jumps over the lazy dog near the river bank.\n"
ANSWER_S = 15.0
"""First requests wait for kernels to be compiled."""


@pytest.fixture(scope="module")
def loop():
    with asyncio.Runner() as runner:
        yield runner.get_loop()


@pytest.fixture(scope="module")
def engines(loop, tmp_path_factory):
    """An engine that guesses by n-grams, and one that does not."""
    spec = ModelSpec(name="smollm2-135m", path=MODEL, dtype="bfloat16", device="cuda")

    async def started(options):
        config = EngineConfig(
            max_context=512,
            seeded=False,
            hand_over=not options,
            answer_timeout_s=ANSWER_S,
            sglang=SERVER | options,
        )
        engine = SglangEngine(config, BuildContext(run_dir=tmp_path_factory.mktemp("run")))
        await engine.start(spec)
        return engine

    async def both():
        return await asyncio.gather(started(NGRAM), started({}))

    found = loop.run_until_complete(both())
    yield found
    for engine in found:
        loop.run_until_complete(engine.stop())


def requests(count, **sampling):
    tokenizer = load_tokenizer(MODEL)
    prompts = [tokenizer.encode(f"{at}. {LINE}" + LINE * 5) for at in range(count)]
    return [
        GenerateRequest(
            id=str(at),
            prompt_ids=np.asarray(prompt, np.int32),
            sampling=SamplingParams(**{"max_tokens": 96, **sampling}),
            seed=at,
        )
        for at, prompt in enumerate(prompts)
    ]


def answers(loop, engine, asked):
    """The results, and tokens a second."""

    async def all_of_them():
        return await asyncio.gather(*(engine.generate(request) for request in asked))

    begun = time.perf_counter()
    results = loop.run_until_complete(asyncio.wait_for(all_of_them(), 60))
    return results, sum(len(r.ids) for r in results) / (time.perf_counter() - begun)


@torch.no_grad()
def scored(asked, results, temperature):
    """Of every sampled token, by transformers: its log-probability, and mean and variance of what
    a token drawn there would have."""
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(MODEL, dtype=torch.bfloat16).cuda().eval()
    found = []
    for request, result in zip(asked, results, strict=True):
        ids = torch.tensor(np.concatenate([request.prompt_ids, result.ids])[None]).long().cuda()
        logits = model(ids).logits[0, len(request.prompt_ids) - 1 : -1].float() / temperature
        logp = torch.log_softmax(logits, -1)
        mean = (logp.exp() * logp).sum(-1)
        variance = (logp.exp() * logp.square()).sum(-1) - mean.square()
        taken = logp.gather(-1, ids[0, len(request.prompt_ids) :, None])[:, 0]
        found.append(torch.stack([taken, mean, variance]).cpu())
    return torch.cat(found, 1).double().numpy()


def test_speculated_tokens_are_the_models_and_have_its_logprobs(loop, engines, record_property):
    for name, engine in zip(("ngram", "plain"), engines, strict=True):
        asked = requests(64, temperature=0.8)
        answers(loop, engine, asked[:8])
        results, speed = answers(loop, engine, asked)
        taken, mean, variance = scored(asked, results, 0.8)
        error = np.abs(np.concatenate([r.logprobs for r in results]) - taken)
        drift = (taken - mean).sum() / np.sqrt(variance.sum())
        tokens, passes = len(taken), sum(r.passes for r in results)
        (lone,), slow = answers(loop, engine, requests(1, temperature=0.0))
        record_property(f"{name} tokens/s of 64 requests, of one", f"{speed:.0f}, {slow:.0f}")
        record_property(
            f"{name} error of logprobs", f"{error.mean():.4f}, at most {error.max():.3f}"
        )
        record_property(f"{name} drift of {tokens} tokens in sigma", f"{drift:.2f}")
        record_property(f"{name} passes for tokens", f"{passes} for {tokens}")
        record_property(f"{name} passes, one greedy request", f"{lone.passes} for {len(lone.ids)}")
        assert error.mean() < 0.05
        assert abs(drift) < 5
        assert (passes > 0) == (name == "ngram")
        assert not passes or tokens > 1.1 * passes


def test_greedy_answers_are_those_of_plain_decoding(loop, engines, record_property):
    asked = requests(16, temperature=0.0)
    (guessed, _), (plain, _) = (answers(loop, engine, asked) for engine in engines)
    same = [np.array_equal(a.ids, b.ids) for a, b in zip(guessed, plain, strict=True)]
    record_property("greedy answers that are the same", f"{sum(same)} of {len(same)}")
    assert sum(same) >= len(same) / 2


def test_new_weights_are_served_while_an_engine_guesses(loop, engines):
    path = MODEL / "model.safetensors"
    checksum = weights_checksum(load_file(path))
    weights = Weights(0, "disk", str(path), checksum, True)
    process = engines[0]._served.process
    reports = loop.run_until_complete(asyncio.wait_for(process.call("update", weights), 60))
    assert [report.problem for report in reports] == [""]
    assert answers(loop, engines[0], requests(4))[0]


def test_an_engine_whose_memory_is_away_is_still_alive(loop, engines):
    async def away():
        await engines[1].offload(["weights", "kv_cache"])
        await engines[1]._served.process.call("alive")
        await engines[1].reload(["weights", "kv_cache"])

    loop.run_until_complete(asyncio.wait_for(away(), 60))
    assert answers(loop, engines[1], requests(4))[0]


@pytest.mark.parametrize(
    ("at", "sent", "limit_s"), [(0, signal.SIGKILL, 10.0), (1, signal.SIGSTOP, 2 * ANSWER_S)]
)
def test_a_scheduler_that_dies_or_hangs_is_noticed(
    loop, engines, record_property, at, sent, limit_s
):
    psutil = pytest.importorskip("psutil")
    engine = engines[at]
    (scheduler,) = (
        child.pid
        for child in psutil.Process(engine._served.process.pid).children(recursive=True)
        if "scheduler" in " ".join(child.cmdline())
    )

    async def lost():
        watched = asyncio.ensure_future(engine.stay())
        running = [asyncio.ensure_future(engine.generate(r)) for r in requests(16, max_tokens=400)]
        await asyncio.sleep(0.2)
        os.kill(scheduler, sent)
        begun = time.perf_counter()
        ended = await asyncio.gather(watched, *running, return_exceptions=True)
        return ended, time.perf_counter() - begun

    ended, seconds = loop.run_until_complete(asyncio.wait_for(lost(), 90))
    gone = [problem for problem in ended if isinstance(problem, ActorGone)]
    record_property(f"{sent.name}: calls that raised", f"{len(gone)} of {len(ended)}")
    record_property(f"{sent.name}: after seconds", f"{seconds:.1f}")
    record_property(f"{sent.name}: as", str(gone[0]))
    assert isinstance(ended[0], ActorGone)
    assert len(gone) > 1
    assert seconds < limit_s
