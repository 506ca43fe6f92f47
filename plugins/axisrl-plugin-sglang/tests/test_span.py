"""Parts of one engine, each in its own SGLang process, with the fake SGLang."""

import asyncio
import os
import re
import signal
from contextlib import asynccontextmanager

import numpy as np
import pytest

from axisrl.errors import ActorGone, ConfigError, EngineFailure
from axisrl.protocols import SpanningEngine
from axisrl.runtime.ranks import free_address
from axisrl.types import BuildContext, GenerateRequest, SamplingParams
from axisrl_sglang.config import EngineConfig, LoraOptions
from axisrl_sglang.launch import Part, check_part

ASK = GenerateRequest(
    id="r0",
    prompt_ids=np.arange(5, 25, dtype=np.int32),
    sampling=SamplingParams(max_tokens=6),
    seed=4,
)


@pytest.fixture
def spanning(fake_sglang, tiny, tmp_path):
    """``spanning(test)`` runs the coroutine ``test(first, second)`` on two parts that started."""
    from axisrl_sglang.engine import SglangEngine

    @asynccontextmanager
    async def started():
        config = EngineConfig(sglang={"tp_size": 2})
        parts = [SglangEngine(config, BuildContext(run_dir=tmp_path, seed=3)) for _ in range(2)]
        address = free_address()
        for number, part in enumerate(parts):
            part.join(number, len(parts), address)
        try:
            await asyncio.gather(*(part.start(tiny) for part in parts))
            yield parts
        finally:
            await asyncio.gather(*(part.stop() for part in parts))

    async def whole(test):
        async with asyncio.timeout(120), started() as parts:
            return await test(*parts)

    return lambda test: asyncio.run(whole(test))


def scheduler_of(engine):
    """Pid of what runs the model, as SGLang's scheduler does."""
    return int(re.search(r"fake scheduler (\d+)", engine._served.process.log.read_text())[1])


def test_the_first_part_answers_as_an_engine_on_one_machine_and_the_other_does_not(
    spanning, serving
):
    async def ask(engine, other=None):
        if other is not None:
            assert isinstance(other, SpanningEngine)
            with pytest.raises(EngineFailure, match="r0"):
                await other.generate(ASK)
        return (await engine.generate(ASK)).ids.tolist()

    assert spanning(ask) == serving(ask)


@pytest.mark.parametrize("what", ["machine", "scheduler"])
def test_a_part_that_loses_a_process_is_gone_and_the_first_answers_nothing_without_it(
    spanning, what
):
    async def test(first, second):
        watched = asyncio.ensure_future(second.stay())
        await asyncio.sleep(0)
        if what == "machine":
            os.killpg(second._served.process.pid, signal.SIGKILL)
        else:
            os.kill(scheduler_of(second), signal.SIGKILL)
        with pytest.raises(ActorGone, match="SGLang"):
            await watched
        asked = asyncio.ensure_future(first.generate(ASK))
        await asyncio.wait([asked], timeout=0.5)
        assert not asked.done()
        first._served.process.kill()  # as whoever watches does
        with pytest.raises(ActorGone):
            await asked

    spanning(test)


def test_processes_that_machines_cannot_share_equally_are_refused():
    with pytest.raises(ConfigError, match=r"tp_size 3, pp_size 1 cannot be shared equally"):
        check_part(Part(0, 2, "here:1"), EngineConfig(sglang={"tp_size": 3}))
    check_part(Part(0, 2, "here:1"), EngineConfig(sglang={"tp_size": 1, "pp_size": 2}))
    check_part(Part(), EngineConfig(sglang={"tp_size": 3}))


def test_adapters_are_refused_which_only_one_machine_could_read():
    config = EngineConfig(lora=LoraOptions(), sglang={"tp_size": 2})
    with pytest.raises(ConfigError, match=r"engine\.lora: .*files of one machine") as refused:
        check_part(Part(1, 2, "here:1"), config)
    assert "trainer.lora.update merged" in refused.value.fix
    check_part(Part(), config)


def test_only_what_tells_parts_apart_differs_and_one_alone_has_nothing_of_it():
    assert Part().arguments == {} and Part().variables == {}
    first, second = Part(0, 2, "here:1"), Part(1, 2, "here:1")
    assert first.arguments == {"nnodes": 2, "node_rank": 0, "dist_init_addr": "here:1"}
    assert second.arguments == first.arguments | {"node_rank": 1}
    assert first.variables == {}
    assert second.variables == {"SGLANG_BLOCK_NONZERO_RANK_CHILDREN": "0"}
