"""Behaviour of axisrl_local.engine on the tiny model: ends, aborts, pauses, refusals, updates."""

import asyncio
import dataclasses
import logging

import numpy as np
import pytest

from axisrl.errors import EngineFailure, EnvironmentProblem
from axisrl.types import (
    BuildContext,
    GenerateRequest,
    SamplingParams,
)
from axisrl_local.config import EngineConfig
from axisrl_local.engine import LocalEngine

LONG = SamplingParams(max_tokens=200)


def request(seed=0, length=10, sampling=LONG, **fields):
    ids = np.random.default_rng(seed).integers(4, 97, length).astype(np.int32)
    return GenerateRequest(
        id=str(seed), **{"prompt_ids": ids, "sampling": sampling, "seed": seed, **fields}
    )


async def until_it_runs(engine, requests=1):
    while len(engine._scheduler.active) < requests:
        await asyncio.sleep(0)


def test_a_stop_token_ends_the_request_and_stays(serve):
    async def play(engine):
        whole = await engine.generate(request(sampling=SamplingParams(max_tokens=20)))
        stop = int(whole.ids[4])
        sampling = SamplingParams(max_tokens=20, stop_token_ids=(stop,))
        return whole, await engine.generate(request(sampling=sampling)), stop

    whole, stopped, stop = serve(play)
    first = whole.ids.tolist().index(stop)
    assert stopped.ids.tolist() == whole.ids[: first + 1].tolist()
    assert stopped.finish_reason == "stop"


def test_the_end_of_turn_token_of_the_model_stops(serve):
    async def play(engine):
        assert engine._runner.stop_ids == {3}
        many = [request(seed, sampling=SamplingParams(max_tokens=150)) for seed in range(8)]
        return await asyncio.gather(*(engine.generate(one) for one in many))

    results = serve(play)
    stopped = [result for result in results if result.finish_reason == "stop"]
    assert stopped and all(result.ids[-1] == 3 for result in stopped)
    assert not any(3 in result.ids[:-1] for result in results)


def test_a_stop_string_over_several_tokens_ends_the_request(serve):
    async def play(engine):
        whole = await engine.generate(request(sampling=SamplingParams(max_tokens=20)))
        text = engine._runner.tokenizer.decode(whole.ids)
        sampling = SamplingParams(max_tokens=20, stop=("never this", text[5:8]))
        return text, await engine.generate(request(sampling=sampling))

    text, stopped = serve(play)
    assert stopped.finish_reason == "stop"
    assert len(stopped.ids) == text.index(text[5:8]) + 3


def test_max_tokens_is_a_length_end(serve):
    result = serve(lambda engine: engine.generate(request(sampling=SamplingParams(max_tokens=7))))
    assert (len(result.ids), result.finish_reason) == (7, "length")
    assert result.ids.dtype == np.int32 and result.logprobs.dtype == np.float32


def test_resumed_generation_has_only_its_remaining_budget(serve):
    async def play(engine):
        sampling = SamplingParams(max_tokens=10)
        part = await engine.generate(request(sampling=sampling, sampled_before=8))
        none = await engine.generate(request(sampling=sampling, length=20, sampled_before=10))
        return part, none

    part, none = serve(play)
    assert (len(part.ids), part.finish_reason) == (2, "length")
    assert (len(none.ids), none.finish_reason) == (0, "length")


def test_a_prompt_near_the_limit_is_cut_at_the_context(serve):
    result = serve(lambda engine: engine.generate(request(length=62)), max_context=64)
    assert (len(result.ids), result.finish_reason) == (2, "length")


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"length": 64}, "64 tokens of a context of 64"),
        ({"prompt_ids": np.zeros(0, np.int32)}, r"shape \(0,\)"),
        ({"prompt_ids": np.asarray([5, 100], np.int32)}, "outside the vocabulary of 100"),
        ({"prompt_ids": np.asarray([-1], np.int32)}, "outside the vocabulary"),
        ({"sampled_before": 10}, "sampled_before 10"),
        ({"sampling": SamplingParams(temperature=-1.0)}, "temperature -1.0"),
        ({"sampling": SamplingParams(top_p=0.0)}, "top_p 0.0"),
    ],
)
def test_a_refused_request_fails_alone(serve, fields, reason):
    async def play(engine):
        good = request(1, sampling=SamplingParams(max_tokens=5))
        return await asyncio.gather(
            engine.generate(good), engine.generate(request(**fields)), return_exceptions=True
        )

    good, bad = serve(play, max_context=64)
    assert len(good.ids) == 5
    with pytest.raises(EngineFailure, match=reason):
        raise bad


def test_requests_join_while_others_decode(serve):
    async def play(engine):
        first = asyncio.create_task(engine.generate(request(1)))
        await until_it_runs(engine)
        second = await engine.generate(request(2, sampling=SamplingParams(max_tokens=3)))
        running = not first.done()
        await engine.abort()
        return running, second

    running, second = serve(play)
    assert running and len(second.ids) == 3


def test_sixty_four_requests_share_eight_slots(serve):
    async def play(engine):
        many = [
            request(seed, 3 + seed, sampling=SamplingParams(max_tokens=1 + seed % 7))
            for seed in range(64)
        ]
        return await asyncio.gather(*(engine.generate(one) for one in many))

    for seed, result in enumerate(serve(play)):
        assert len(result.ids) == 1 + seed % 7 or result.finish_reason == "stop"


def test_other_coroutines_run_during_a_pass(serve):
    async def play(engine):
        turns = 0
        task = asyncio.create_task(engine.generate(request(1)))
        while not task.done():
            turns += 1
            await asyncio.sleep(0)
        return turns / len(task.result().ids)

    assert serve(play) > 4


def test_an_abort_ends_one_session_and_its_result_is_the_beginning(serve):
    async def play(engine):
        whole = await engine.generate(request(1))
        cut = asyncio.create_task(engine.generate(request(1, session="a")))
        other = asyncio.create_task(engine.generate(request(2, session="b")))
        await until_it_runs(engine, 2)
        for _ in range(20):
            await asyncio.sleep(0.001)
        count = await engine.abort("a")
        assert not other.done()
        return whole, count, await cut, await engine.abort(), await other

    whole, count, cut, rest, other = serve(play)
    assert (count, cut.finish_reason, rest, other.finish_reason) == (1, "abort", 1, "abort")
    assert cut.ids.tolist() == whole.ids[: len(cut.ids)].tolist()


def test_an_aborted_request_resumes_as_if_nothing_had_happened(serve):
    async def play(engine):
        whole = await engine.generate(request(1))
        task = asyncio.create_task(engine.generate(request(1)))
        await until_it_runs(engine)
        await asyncio.sleep(0.02)
        await engine.abort()
        part = await task
        asked = request(1)
        ids = np.concatenate([asked.prompt_ids, part.ids]).astype(np.int32)
        rest = await engine.generate(
            dataclasses.replace(asked, prompt_ids=ids, sampled_before=len(part.ids))
        )
        return whole, part, rest

    whole, part, rest = serve(play)
    assert part.ids.tolist() + rest.ids.tolist() == whole.ids.tolist()
    assert np.concatenate([part.logprobs, rest.logprobs]).tobytes() == whole.logprobs.tobytes()


def test_an_abort_ends_requests_that_wait(serve):
    async def play(engine):
        await engine.pause()
        held = asyncio.create_task(engine.generate(request(1)))
        await asyncio.sleep(0)
        return await engine.abort(), await held, await engine.abort()

    count, held, again = serve(play)
    assert (count, held.finish_reason, len(held.ids), again) == (1, "abort", 0, 0)


def test_a_cancelled_generate_frees_its_slot(serve):
    async def play(engine):
        tasks = [asyncio.create_task(engine.generate(request(seed))) for seed in range(2)]
        await until_it_runs(engine, 2)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        result = await engine.generate(request(3, sampling=SamplingParams(max_tokens=2)))
        return result, dict(engine._scheduler.active)

    result, active = serve(play, max_batch=2)
    assert len(result.ids) == 2 and active == {}


def test_pause_holds_new_requests_and_lets_running_ones_go_on(serve):
    async def play(engine):
        running = asyncio.create_task(
            engine.generate(request(1, sampling=SamplingParams(max_tokens=30)))
        )
        await until_it_runs(engine)
        await engine.pause()
        short = SamplingParams(max_tokens=3)
        held = asyncio.create_task(engine.generate(request(2, sampling=short)))
        result = await running
        waited = not held.done()
        await engine.resume()
        return result, waited, await held

    result, waited, held = serve(play)
    assert len(result.ids) > 20 and waited and len(held.ids) > 0


def test_a_failing_pass_fails_what_is_in_flight_and_nothing_later(serve, monkeypatch):
    async def play(engine):
        step, broken = engine._runner.step, [True]

        def once(plan):
            if broken and len(plan.sampled) == 2:
                broken.clear()
                raise RuntimeError("out of memory")
            return step(plan)

        monkeypatch.setattr(engine._runner, "step", once)
        outcomes = await asyncio.gather(
            *(engine.generate(request(seed)) for seed in range(2)), return_exceptions=True
        )
        return outcomes, await engine.generate(request(1, sampling=SamplingParams(max_tokens=4)))

    logging.disable(logging.CRITICAL)
    outcomes, later = serve(play)
    logging.disable(logging.NOTSET)
    for outcome in outcomes:
        with pytest.raises(EngineFailure, match="RuntimeError: out of memory"):
            raise outcome
    assert len(later.ids) == 4


def test_a_device_that_cannot_be_cleared_leaves_nobody_waiting(serve, monkeypatch):
    def broken(*args):
        raise RuntimeError("device lost")

    async def play(engine):
        monkeypatch.setattr(engine._runner, "step", broken)
        monkeypatch.setattr(engine._runner, "clear", broken)
        return await asyncio.gather(
            *(engine.generate(request(seed)) for seed in range(12)), return_exceptions=True
        )

    logging.disable(logging.CRITICAL)
    outcomes = serve(play)
    logging.disable(logging.NOTSET)
    assert all(isinstance(outcome, EngineFailure) for outcome in outcomes)


def test_a_tokenizer_that_fails_fails_the_request(serve, monkeypatch):
    def broken(*args, **kwargs):
        raise ValueError("no such token")

    async def play(engine):
        monkeypatch.setattr(engine._runner.tokenizer, "decode", broken)
        with pytest.raises(EngineFailure, match="no such token"):
            await engine.generate(request(sampling=SamplingParams(stop=("x",))))

    logging.disable(logging.CRITICAL)
    serve(play)
    logging.disable(logging.NOTSET)


def test_stop_fails_what_runs_and_can_be_called_twice(serve):
    async def play(engine):
        task = asyncio.create_task(engine.generate(request(1)))
        await until_it_runs(engine)
        await engine.stop()
        await engine.stop()
        with pytest.raises(EngineFailure, match="the engine was stopped"):
            await task
        with pytest.raises(EngineFailure, match="not started"):
            await engine.generate(request(1))

    serve(play)


def test_one_engine_serves_one_event_loop_after_another(tiny, tmp_path):
    engine = LocalEngine(EngineConfig(max_batch=2), BuildContext(run_dir=tmp_path))
    asyncio.run(engine.start(tiny))
    short = request(1, sampling=SamplingParams(max_tokens=3))
    assert len(asyncio.run(engine.generate(short)).ids) == 3
    assert len(asyncio.run(engine.generate(short)).ids) == 3
    asyncio.run(engine.stop())


def test_a_model_of_another_kind_is_an_environment_problem(serve, make_model, tiny):
    spec = make_model("gpt_neox")
    with pytest.raises(EnvironmentProblem, match="model type gpt_neox"):
        serve(None, spec)


def test_a_missing_folder_is_an_environment_problem(serve, tiny, tmp_path):
    with pytest.raises(EnvironmentProblem, match=r"no config\.json"):
        serve(None, dataclasses.replace(tiny, path=tmp_path))


@pytest.mark.parametrize("options", [{"max_batch": 0}, {"max_context": 1}, {"step_tokens": 63}])
def test_sizes_that_cannot_work_are_refused(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        EngineConfig(**options)


def test_the_cache_is_freed_on_any_device_and_what_was_cached_is_computed_again(serve):
    """Memory comes back empty: a prefix that was cached before must not be used again."""

    async def play(engine):
        first = await engine.generate(request())
        again = await engine.generate(request())
        cache = engine._runner._cache
        held = cache.capacity
        await engine.offload(["weights", "kv_cache"])
        freed = (cache.capacity, cache.keys[0].numel(), engine._runner._sampler._buffer.numel())
        await engine.reload(["weights", "kv_cache"])
        return first, again, await engine.generate(request()), held == cache.capacity > 0, freed

    first, again, last, same_room, freed = serve(play)
    assert (again.cached_tokens, last.cached_tokens) == (9, 0)
    assert freed == (0, 0, 0) and same_room
    assert last.ids.tobytes() == first.ids.tobytes()
    assert last.logprobs.tobytes() == first.logprobs.tobytes()


def test_a_start_brings_back_what_was_handed_over(serve, tiny):
    async def play(engine):
        await engine.offload(["weights", "kv_cache"])
        await engine.start(tiny)
        return await engine.generate(request(sampling=SamplingParams(max_tokens=3)))

    assert len(serve(play).ids) == 3


def test_texts_are_not_scored_without_weights(serve):
    async def play(engine):
        await engine.offload(["kv_cache"])
        await engine.score(np.arange(4, 9, dtype=np.int32), 1.0)
        await engine.offload(["weights"])
        with pytest.raises(EngineFailure, match="weights are off the device"):
            await engine.score(np.arange(4, 9, dtype=np.int32), 1.0)

    serve(play)
