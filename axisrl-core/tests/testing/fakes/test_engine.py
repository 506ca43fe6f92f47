import asyncio
import math

import numpy as np
import pytest

from axisrl.errors import EngineFailure, WeightSyncError
from axisrl.testing.fakes import (
    CharTokenizer,
    FakeClock,
    Reply,
    ScriptedEngine,
    ScriptedEngineConfig,
    ScriptedTrainer,
)
from axisrl.types import BuildContext, GenerateRequest, ModelSpec, SamplingParams

TOKENIZER = CharTokenizer()
END = 2


def request(prompt="Say 3.", *, name="r", session="", before="", **sampling):
    ids = TOKENIZER.encode(prompt + before)
    return GenerateRequest(
        id=name,
        prompt_ids=np.asarray(ids, np.int32),
        sampling=SamplingParams(**sampling),
        seed=0,
        session=session,
        sampled_before=len(TOKENIZER.encode(before)),
    )


def answer(engine, *args, **kwargs):
    return asyncio.run(engine.generate(request(*args, **kwargs)))


def test_the_first_reply_whose_text_is_in_the_prompt_is_given():
    engine = ScriptedEngine(ScriptedEngineConfig(replies={"Say": "three", "3": "no"}))
    result = answer(engine)
    assert TOKENIZER.decode(result.ids.tolist()) == "three"
    assert (result.finish_reason, result.ids[-1]) == ("stop", END)


def test_any_other_prompt_gets_the_default():
    assert TOKENIZER.decode(answer(ScriptedEngine(), "?").ids.tolist()) == "ok"


def test_a_script_sees_the_prompt_and_the_request():
    engine = ScriptedEngine(script=lambda prompt, request: f"{prompt} {request.seed}")
    assert TOKENIZER.decode(answer(engine, "hi").ids.tolist()) == "hi 0"


def test_every_token_has_the_uniform_logprob_and_the_present_version():
    engine = ScriptedEngine()
    engine.version = 4
    result = answer(engine)
    assert result.logprobs.tolist() == pytest.approx([-math.log(TOKENIZER.vocab_size)] * 3)
    assert result.versions.tolist() == [4, 4, 4]


@pytest.mark.parametrize(
    ("sampling", "said", "reason"),
    [
        ({"max_tokens": 3}, "abc", "length"),
        ({"stop": ("cd",)}, "abcd", "stop"),
        ({"stop_token_ids": tuple(TOKENIZER.encode("b"))}, "ab", "stop"),
    ],
)
def test_a_reply_is_cut_as_a_real_engine_would_cut_it(sampling, said, reason):
    engine = ScriptedEngine(ScriptedEngineConfig(default="abcdef"))
    result = answer(engine, **sampling)
    assert (TOKENIZER.decode(result.ids.tolist()), result.finish_reason) == (said, reason)


def test_exact_ids_are_given_as_they_are():
    engine = ScriptedEngine(script=lambda *_: Reply(ids=(7, 8, 9)))
    assert answer(engine).ids.tolist() == [7, 8, 9]


def test_a_resumed_request_gets_the_rest_within_the_whole_budget():
    engine = ScriptedEngine(ScriptedEngineConfig(replies={"Say 3.": "abcdef"}))
    result = answer(engine, before="ab", max_tokens=5)
    assert (TOKENIZER.decode(result.ids.tolist()), result.finish_reason) == ("cde", "length")


def test_a_full_context_is_refused_and_a_nearly_full_one_cut():
    engine = ScriptedEngine(ScriptedEngineConfig(max_context=8, default="abcdef"))
    assert len(answer(engine, "12345").ids) == 3
    with pytest.raises(EngineFailure, match="8 prompt tokens leave no room in 8"):
        answer(engine, "12345678")


def test_a_scripted_error_is_an_engine_failure():
    with pytest.raises(EngineFailure, match="lost"):
        answer(ScriptedEngine(script=lambda *_: Reply(error="lost")))


def test_latency_is_the_clocks():
    async def scene():
        clock = FakeClock()
        engine = ScriptedEngine(ScriptedEngineConfig(latency_s=2.0), sleep=clock.sleep)
        running = asyncio.ensure_future(engine.generate(request()))
        await asyncio.wait([running], timeout=0.01)
        assert not running.done()
        clock.advance(2.0)
        return await asyncio.wait_for(running, 1)

    assert asyncio.run(scene()).finish_reason == "stop"


def test_a_hanging_request_is_aborted_with_what_it_has():
    async def scene():
        engine = ScriptedEngine(script=lambda *_: Reply(text="abcdef", hang_after=2))
        mine = asyncio.ensure_future(engine.generate(request(name="1", session="a")))
        other = asyncio.ensure_future(engine.generate(request(name="2", session="b")))
        await asyncio.wait([mine, other], timeout=0.01)
        assert engine.peak == 2
        counts = [await engine.abort("a"), await engine.abort("nobody")]
        first = await asyncio.wait_for(mine, 1)
        counts.append(await engine.abort())
        await asyncio.wait_for(other, 1)
        return first, counts

    first, counts = asyncio.run(scene())
    assert (TOKENIZER.decode(first.ids.tolist()), first.finish_reason) == ("ab", "abort")
    assert counts == [1, 0, 1]


def test_an_abort_ends_a_request_that_still_waits():
    async def scene():
        engine = ScriptedEngine(ScriptedEngineConfig(latency_s=9.0), sleep=FakeClock().sleep)
        running = asyncio.ensure_future(engine.generate(request()))
        await asyncio.wait([running], timeout=0.01)
        await engine.abort()
        return await asyncio.wait_for(running, 1)

    result = asyncio.run(scene())
    assert (len(result.ids), result.finish_reason) == (0, "abort")


def test_pause_holds_new_requests_until_resume():
    async def scene():
        engine = ScriptedEngine()
        await engine.pause()
        held = asyncio.ensure_future(engine.generate(request()))
        await asyncio.wait([held], timeout=0.01)
        assert not held.done()
        await engine.resume()
        return await asyncio.wait_for(held, 1)

    assert asyncio.run(scene()).finish_reason == "stop"


@pytest.fixture
def update(tmp_path):
    trainer = ScriptedTrainer(context=BuildContext(run_dir=tmp_path))
    trainer.start(ModelSpec(name="m", path=tmp_path), 1)
    return trainer.weight_update(1)


def test_new_weights_are_loaded_and_echoed(update):
    engine = ScriptedEngine()
    ack = asyncio.run(engine.update_weights(update))
    assert (ack.version, ack.checksum) == (1, update.checksum)
    assert (engine.version, engine.updates) == (1, [update])


@pytest.mark.parametrize("how", ["version", "checksum"])
def test_an_echo_can_be_wrong_on_purpose(update, how):
    ack = asyncio.run(ScriptedEngine(ScriptedEngineConfig(bad_ack=how)).update_weights(update))
    assert (ack.version == 1) == (how != "version")
    assert (ack.checksum == update.checksum) == (how != "checksum")


def test_an_echo_can_stay_out(update):
    engine = ScriptedEngine(ScriptedEngineConfig(bad_ack="never"))
    with pytest.raises(TimeoutError):
        asyncio.run(asyncio.wait_for(engine.update_weights(update), 0.01))


def test_updates_are_refused_while_requests_run(update):
    async def scene():
        engine = ScriptedEngine(script=lambda *_: Reply(hang_after=0))
        running = asyncio.ensure_future(engine.generate(request()))
        await asyncio.wait([running], timeout=0.01)
        try:
            await engine.update_weights(update)
        finally:
            await engine.stop()
            await running

    with pytest.raises(WeightSyncError, match="while 1 requests run"):
        asyncio.run(scene())


def test_scores_are_uniform_and_what_was_scored_is_kept():
    engine = ScriptedEngine()
    ids = np.arange(4, dtype=np.int32)
    scores = asyncio.run(engine.score(ids, 0.7))
    assert scores.tolist() == pytest.approx([-math.log(TOKENIZER.vocab_size)] * 3)
    assert engine.scored == [(ids, 0.7)]


def test_a_text_longer_than_the_context_is_not_scored():
    engine = ScriptedEngine(ScriptedEngineConfig(max_context=3))
    assert len(asyncio.run(engine.score(np.zeros(3, np.int32), 1.0))) == 2
    with pytest.raises(EngineFailure, match="4 tokens cannot be scored"):
        asyncio.run(engine.score(np.zeros(4, np.int32), 1.0))


def test_requests_wait_while_its_memory_is_away_and_can_be_aborted():
    engine = ScriptedEngine()

    async def play():
        await engine.offload(["weights", "kv_cache"])
        ended = asyncio.ensure_future(engine.generate(request(name="a", session="a")))
        held = asyncio.ensure_future(engine.generate(request(name="b", session="b")))
        await asyncio.sleep(0)
        assert await engine.abort("a") == 1
        await engine.reload(["weights"])
        await asyncio.sleep(0)
        waiting = not held.done()
        await engine.reload(["kv_cache"])
        return (await ended).finish_reason, waiting, (await held).finish_reason

    assert asyncio.run(play()) == ("abort", True, "stop")


def test_a_pause_outlasts_memory_that_comes_back():
    engine = ScriptedEngine()

    async def play():
        await engine.pause()
        await engine.offload(["kv_cache"])
        await engine.reload(["kv_cache"])
        held = asyncio.ensure_future(engine.generate(request()))
        done, _ = await asyncio.wait([held], timeout=0.01)
        await engine.resume()
        return bool(done), (await held).finish_reason

    assert asyncio.run(play()) == (False, "stop")


def test_memory_is_not_handed_over_under_a_request_nor_weights_taken_without_it(tmp_path):
    engine = ScriptedEngine(script=lambda *_: Reply(text="abc", hang_after=1))
    trainer = ScriptedTrainer(context=BuildContext(run_dir=tmp_path))
    trainer.start(ModelSpec(name="m", path=tmp_path), 1)

    async def play():
        running = asyncio.ensure_future(engine.generate(request()))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(EngineFailure, match="1 requests run"):
            await engine.offload(["kv_cache"])
        await engine.abort()
        await running
        await engine.offload(["weights"])
        with pytest.raises(WeightSyncError, match="away"):
            await engine.update_weights(trainer.weight_update(1))

    asyncio.run(play())
