"""Tests of axisrl_sglang.engine and the process behind it, with the fake SGLang."""

import asyncio
import dataclasses
import os
import re
import shutil
import signal

import numpy as np
import pytest

from axisrl.errors import (
    ActorGone,
    ConfigError,
    EngineFailure,
    EnvironmentProblem,
    WeightSyncError,
)
from axisrl.types import BuildContext, GenerateRequest, SamplingParams, WeightUpdate
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.messages import Report
from axisrl_sglang.versions import SUPPORTED

NGRAM = {"speculative_algorithm": "NGRAM"}
UPDATE = WeightUpdate(version=1, transport="disk", location="/x", tensors=(), checksum="c")
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


def test_an_abort_that_is_cancelled_does_not_cancel_what_others_wait_for(serving):
    async def test(engine):
        await engine.pause()
        waiting = asyncio.ensure_future(engine.generate(ask()))
        await asyncio.sleep(0)
        given_up, other = (asyncio.ensure_future(engine.abort()) for _ in range(2))
        await asyncio.sleep(0)
        given_up.cancel()
        ended = await asyncio.gather(waiting, other, given_up, return_exceptions=True)
        return ended[0].finish_reason, *ended[1:]

    finish, count, given_up = serving(test)
    assert (finish, count) == ("abort", 1)
    assert isinstance(given_up, asyncio.CancelledError)


def test_a_request_that_is_cancelled_as_the_process_goes_is_cancelled(serving):
    async def test(engine):
        running = asyncio.ensure_future(engine.generate(ask()))
        await asyncio.sleep(0)
        os.kill(engine._served.process.pid, signal.SIGKILL)
        engine._served.process._leave("it is gone")
        running.cancel()
        return await asyncio.gather(running, return_exceptions=True)

    (ended,) = serving(test)
    assert isinstance(ended, asyncio.CancelledError)


def test_requests_that_wait_when_the_engine_is_stopped_are_told(serving):
    async def test(engine):
        await engine.pause()
        waiting = asyncio.ensure_future(engine.generate(ask()))
        await asyncio.sleep(0)
        await engine.stop()
        await waiting

    with pytest.raises(ActorGone, match="SGLang was stopped"):
        serving(test)


def test_a_tokenizer_that_fails_fails_its_request_alone(serving):
    class Failing:
        stop_ids = frozenset()

        def decode(self, ids, skip_special=True):
            raise LookupError("no such id")

    async def test(engine):
        tokenizer = engine._served.tokenizer
        engine._served = dataclasses.replace(engine._served, tokenizer=Failing())
        with pytest.raises(LookupError, match="no such id"):
            await engine.generate(ask(stop=("x",)))
        engine._served = dataclasses.replace(engine._served, tokenizer=tokenizer)
        return await engine.generate(ask())

    assert len(serving(test).ids) >= 1


def test_weights_that_some_ranks_alone_took_are_not_sampled_from(serving):
    async def test(engine):
        async def call(method, *arguments):
            return [Report("c"), Report(problem="out of memory")]

        engine._served.process.call, real = call, engine._served.process.call
        with pytest.raises(WeightSyncError, match="rank 1"):
            await engine.update_weights(UPDATE)
        engine._served.process.call = real
        await engine.generate(ask())

    with pytest.raises(EngineFailure, match="update 1 went wrong half-way"):
        serving(test)


def test_a_sign_of_life_that_is_refused_is_one_and_the_next_is_asked_for(serving):
    async def test(engine):
        asked = asyncio.Semaphore(0)

        async def call(method, *arguments):
            asked.release()
            raise EngineFailure("not now")

        engine._served.process.call = call
        for _ in range(2):
            await asked.acquire()

    serving(test, answer_timeout_s=0.2)


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


@pytest.mark.usefixtures("fake_sglang")
def test_a_tied_model_with_an_output_matrix_of_its_own_does_not_start(tiny, tmp_path):
    from safetensors.torch import load_file, save_file

    from axisrl_sglang.engine import SglangEngine

    model = dataclasses.replace(tiny, path=shutil.copytree(tiny.path, tmp_path / "model"))
    weights = load_file(model.path / "model.safetensors")
    zeros = weights["model.embed_tokens.weight"].clone().zero_()
    save_file(weights | {"lm_head.weight": zeros}, model.path / "model.safetensors")
    engine = SglangEngine(EngineConfig(), BuildContext(run_dir=tmp_path))
    with pytest.raises(EnvironmentProblem, match="keeps an output matrix apart from the embedding"):
        asyncio.run(engine.start(model))
