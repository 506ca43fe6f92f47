"""Tests of axisrl_sglang.engine and the process behind it, with the fake SGLang."""

import asyncio
import os
import re
import signal

import numpy as np
import pytest

from axisrl.errors import ActorGone, ConfigError, EngineFailure, EnvironmentProblem
from axisrl.types import BuildContext, GenerateRequest, SamplingParams
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.versions import SUPPORTED

NGRAM = {"speculative_algorithm": "NGRAM"}
PROMPT = np.arange(5, 25, dtype=np.int32)


def ask(seed=0, before=(), session="", **sampling):
    return GenerateRequest(
        id=f"r{seed}",
        prompt_ids=np.concatenate([PROMPT, np.asarray(before, np.int32)]),
        sampling=SamplingParams(**{"max_tokens": 6, **sampling}),
        seed=seed,
        sampled_before=len(before),
        session=session,
    )


def test_masked_logprobs_are_among_the_tokens_left(serving):
    async def test(engine):
        return await engine.generate(ask(top_k=2)), await engine.generate(ask(top_p=1e-6))

    two, one = serving(test)
    assert (two.logprobs <= 0).all() and (two.logprobs > -20).all()
    assert one.logprobs == pytest.approx(np.zeros(len(one.ids)), abs=1e-6)


def test_seeds_with_min_p_are_refused_and_without_seeds_it_works(serving):
    async def test(engine):
        return await engine.generate(ask(min_p=0.1))

    with pytest.raises(EngineFailure, match="no seeds with min_p"):
        serving(test)
    assert len(serving(test, seeded=False).ids) >= 1


def test_a_stop_string_of_a_resumed_request_may_have_begun_before(serving, tiny):
    from axisrl.runtime.chat import load_tokenizer

    tokenizer = load_tokenizer(tiny.path)

    async def test(engine):
        whole = await engine.generate(ask(seed=4))
        text = tokenizer.decode(whole.ids[1:4].tolist(), skip_special=False)
        begun = whole.ids[:2]
        rest = await engine.generate(ask(seed=4, before=begun, stop=(text,)))
        return whole, rest

    whole, rest = serving(test)
    assert rest.finish_reason == "stop"
    assert rest.ids.tolist() == whole.ids[2:4].tolist()


def test_speculated_tokens_have_the_models_logprobs_and_come_in_fewer_passes(serving):
    async def test(engine):
        return await engine.generate(ask(temperature=0.0, max_tokens=6))

    plain = serving(test)
    guessed = serving(test, seeded=False, sglang=NGRAM)
    assert guessed.ids.tolist() == plain.ids.tolist()
    assert guessed.logprobs == pytest.approx(plain.logprobs, abs=1e-6)
    assert (plain.passes, guessed.passes) == (0, 1 + len(guessed.ids) // 2)


def test_a_stop_string_may_end_amid_speculated_tokens(serving, tiny):
    from axisrl.runtime.chat import load_tokenizer

    tokenizer = load_tokenizer(tiny.path)

    async def test(engine):
        whole = await engine.generate(ask(temperature=0.0))
        text = tokenizer.decode(whole.ids[1:2].tolist(), skip_special=False)
        return whole, await engine.generate(ask(temperature=0.0, stop=(text,)))

    whole, stopped = serving(test, seeded=False, sglang=NGRAM)
    assert stopped.finish_reason == "stop"
    assert stopped.ids.tolist() == whole.ids[: len(stopped.ids)].tolist()
    assert len(stopped.ids) == len(stopped.logprobs) <= 2


def test_masks_are_refused_with_speculation_which_has_no_logprobs_under_them(serving):
    async def test(engine):
        await engine.generate(ask(top_p=0.9))

    with pytest.raises(EngineFailure, match="not with speculative decoding"):
        serving(test, seeded=False, sglang=NGRAM)


def test_cached_tokens_are_told_until_new_weights_come(serving):
    async def test(engine):
        first = await engine.generate(ask())
        return first.cached_tokens, (await engine.generate(ask(seed=1))).cached_tokens

    assert serving(test) == (0, len(PROMPT) - 1)


def test_requests_that_are_cancelled_are_ended_in_sglang(serving):
    async def test(engine):
        task = asyncio.ensure_future(engine.generate(ask(max_tokens=200)))
        for _ in range(3):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await engine.offload(["kv_cache"])  # SGLang must be idle for it

    serving(test, hand_over=True)


def test_a_process_that_is_gone_is_an_actor_that_is_gone(serving):
    async def test(engine):
        running = asyncio.ensure_future(engine.generate(ask(max_tokens=200)))
        watched = asyncio.ensure_future(engine.stay())
        await engine.generate(ask(seed=1, max_tokens=1))
        os.kill(engine._served.process.pid, signal.SIGKILL)
        ended = await asyncio.gather(running, watched, return_exceptions=True)
        with pytest.raises(ActorGone, match="ended with -9; it said last:\nfake SGLang"):
            await engine.generate(ask())
        return ended

    assert [type(problem) for problem in serving(test)] == [ActorGone, ActorGone]


def scheduler_of(engine):
    """Pid of what runs the model, as SGLang's scheduler does."""
    return int(re.search(r"fake scheduler (\d+)", engine._served.process.log.read_text())[1])


def test_a_scheduler_that_is_killed_takes_its_requests_and_the_engine_with_it(serving):
    async def test(engine):
        watched = asyncio.ensure_future(engine.stay())
        os.kill(scheduler_of(engine), signal.SIGKILL)
        running = asyncio.ensure_future(engine.generate(ask()))
        return await asyncio.gather(running, watched, return_exceptions=True)

    for problem in serving(test):
        assert isinstance(problem, ActorGone)
        assert "ended with -9; it said last" in str(problem)
        assert "of SGLang (pid" in str(problem)


def test_a_scheduler_that_hangs_is_ended_when_it_gives_no_sign_of_life(serving):
    async def test(engine):
        watched = asyncio.ensure_future(engine.stay())
        os.kill(scheduler_of(engine), signal.SIGSTOP)
        running = asyncio.ensure_future(engine.generate(ask()))
        return await asyncio.gather(running, watched, return_exceptions=True)

    for problem in serving(test, answer_timeout_s=1.0):
        assert isinstance(problem, ActorGone)
        assert "no sign of life for engine.answer_timeout_s 1 s" in str(problem)


def test_memory_is_handed_over_only_where_sglang_was_started_for_it(serving):
    async def test(engine):
        await engine.offload(["weights"])

    with pytest.raises(EnvironmentProblem, match="memory saver") as refused:
        serving(test)
    assert "engine.hand_over" in refused.value.fix


def test_a_start_that_fails_says_why_and_leaves_nothing(serving):
    with pytest.raises(EnvironmentProblem, match="attention_backend broken is not a backend"):
        serving(None, sglang={"attention_backend": "broken"})


def test_a_start_that_fails_names_a_release_outside_the_supported_range(serving, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.9.1")
    with pytest.raises(EnvironmentProblem, match=f"SGLang 0.9.1 is installed.*{SUPPORTED}"):
        serving(None, sglang={"attention_backend": "broken"})


@pytest.mark.usefixtures("fake_sglang")
def test_an_unknown_server_argument_is_found_before_anything_starts(tmp_path):
    from axisrl_sglang.engine import SglangEngine

    with pytest.raises(ConfigError, match=r"engine.sglang.tp_sise.*tp_size"):
        SglangEngine(EngineConfig(sglang={"tp_sise": 2}), BuildContext(run_dir=tmp_path))
