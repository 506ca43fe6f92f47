"""Weights from two senders to SGLang engines over process groups (gloo), with the fake SGLang."""

import asyncio
import dataclasses
import json
import multiprocessing
import os
import pickle
import signal

import pytest
import torch
from safetensors.torch import load_file

from axisrl.errors import ActorGone, WeightSyncError
from axisrl.ops.checksum import weights_checksum
from axisrl.ops.weights_sent import WeightSender
from axisrl.types import BuildContext, Ranks
from axisrl_sglang.config import EngineConfig
from axisrl_sglang.messages import Report, Weights

spawn = multiprocessing.get_context("spawn")
TIMEOUT_S = 20.0


class Trainer:
    """Two ranks that hold the same weights."""

    def __init__(self, weights):
        self.weights = weights
        sizes = {"bucket_bytes": 100_000, "timeout_s": TIMEOUT_S}
        self.ranks = [
            WeightSender(
                Ranks(rank=rank, size=2, rendezvous=""),
                lambda: self.weights,
                host="127.0.0.1",
                **sizes,
            )
            for rank in range(2)
        ]
        for rank in self.ranks:
            rank.join(self.ranks[0].address)

    def offer(self, version, receivers=1):
        self.weights = {n: w + 0.01 * torch.randn_like(w) for n, w in self.weights.items()}
        update = self.ranks[0].publish(version, self.weights)
        return dataclasses.replace(update, receivers=receivers)

    def close(self):
        for rank in self.ranks:
            rank.close()


@pytest.fixture
def trainer(tiny):
    made = Trainer(load_file(tiny.path / "model.safetensors"))
    yield made
    made.close()


@pytest.mark.usefixtures("fake_sglang")
def test_two_senders_bring_one_two_and_three_engines_up_to_date_and_lose_one(
    trainer, tiny, tmp_path
):
    from axisrl_sglang.engine import SglangEngine

    context = BuildContext(run_dir=tmp_path, seed=3)
    engines = [SglangEngine(EngineConfig(), context) for _ in range(3)]

    async def sync(version, receivers, **changes):
        update = trainer.offer(version, len(receivers))
        wanted = dataclasses.replace(update, **changes)
        calls = (engine.update_weights(wanted) for engine in receivers)
        found = await asyncio.gather(*calls, return_exceptions=True)
        return update, [each if isinstance(each, Exception) else each.checksum for each in found]

    async def work():
        await asyncio.gather(*(engine.start(tiny) for engine in engines))
        for version, count in enumerate((1, 2, 3, 3), start=1):
            update, found = await sync(version, engines[:count])
            assert found == [update.checksum] * count
        _, (refused,) = await sync(5, engines[:1], checksum="0" * 32)
        assert isinstance(refused, WeightSyncError)
        assert "what arrived is not what was sent; it kept what it had" in refused.message
        os.kill(engines[2]._served.process.pid, signal.SIGKILL)
        update, (first, second, gone) = await sync(6, engines)
        assert first == second == update.checksum
        assert isinstance(gone, ActorGone)
        late = dataclasses.replace(update, receivers=1)
        await engines[2].start(tiny)
        assert (await engines[2].update_weights(late)).checksum == update.checksum

    async def whole():
        try:
            async with asyncio.timeout(240):
                await work()
        finally:
            await asyncio.gather(*(engine.stop() for engine in engines))

    asyncio.run(whole())


class Model(torch.nn.Module):
    """As a rank of SGLang holds it."""

    def __init__(self, shapes):
        super().__init__()
        for name, shape in shapes.items():
            self.register_parameter(name, torch.nn.Parameter(torch.zeros(shape), False))

    def load_weights(self, weights):
        for name, tensor in weights:
            self.get_parameter(name).data.copy_(tensor)


def rank_of_sglang(rank, store, payload, shapes, told):
    """One of two processes of an engine; what it holds after the load."""
    from axisrl_sglang.loading import load

    torch.set_num_threads(1)
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=2
    )
    model = Model(shapes)
    load(model, pickle.loads(payload))
    told.put((rank, weights_checksum(dict(model.named_parameters()))))


def test_every_process_of_an_engine_receives_everything(trainer, tmp_path):
    from axisrl_sglang.payload import payload

    shapes = {"a": (30, 1000), "b": (7,), "c": (500, 100)}
    trainer.weights = {name: torch.zeros(shape) for name, shape in shapes.items()}
    update = trainer.offer(4)
    weights = Weights(4, "nccl", update.location, update.checksum, True, "sglang-1")
    told = spawn.Queue()
    sent = payload(weights, tmp_path / "reports.json")
    ranks = [
        spawn.Process(target=rank_of_sglang, args=(rank, tmp_path / "store", sent, shapes, told))
        for rank in range(2)
    ]
    for rank in ranks:
        rank.start()
    assert sorted(told.get(timeout=120) for _ in ranks) == [(n, update.checksum) for n in (0, 1)]
    for rank in ranks:
        rank.join(60)
    reports = json.loads((tmp_path / "reports.json").read_text())
    assert [Report(**each) for each in reports] == [Report(update.checksum)] * 2
