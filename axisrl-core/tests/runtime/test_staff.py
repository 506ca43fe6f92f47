"""Every worker calls the peers that are there, whoever was replaced while whoever started."""

import asyncio
from types import SimpleNamespace

from axisrl.errors import ActorGone
from axisrl.runtime.staff import Staff
from axisrl.runtime.supervisor import RestartBudget, Supervisor


class Actor:
    def __init__(self, peers=None):
        self.peers = {kind: list(them) for kind, them in (peers or {}).items()}
        self.gone, self.started, self.pid = asyncio.Event(), False, 1

    async def call(self, method, *args):
        if method == "connect" and not self.gone.is_set():
            kind, rank, peer = args
            self.peers[kind][rank] = peer
            return None
        await self.gone.wait()
        raise ActorGone("gone")

    def kill(self):
        self.gone.set()


class Stage:
    """A staff of engines and workers, watched; ``held`` keeps the next of a kind from starting."""

    def __init__(self):
        self.placement = SimpleNamespace(actors={})
        self.staff = Staff(self.placement)
        self.supervisor = Supervisor(RestartBudget(10), 60.0)
        self.held = {"engine": asyncio.Event(), "rollout": asyncio.Event()}
        for event in self.held.values():
            event.set()

    async def engine(self, rank):
        await self.held["engine"].wait()
        return self._placed(f"engine {rank}", Actor())

    async def worker(self, rank, peers):
        await self.held["rollout"].wait()
        return self._placed(f"rollout {rank}", Actor(peers))

    def _placed(self, name, actor):
        self.placement.actors[name] = actor
        return actor

    async def started(self, rank, engine):
        engine.started = True

    async def up(self):
        self.engines = await self.staff.place("engine", 2, self.engine, self.started)
        await self.staff.start("engine")
        await self.staff.employ(2, self.worker)
        self.staff.watched_by(self.supervisor)

    async def lose(self, post):
        """Its successor, when everybody has heard."""
        dead = post.handle
        dead.kill()
        successor = await self.supervisor.guard(post.successor(dead))
        for _ in range(10):
            await asyncio.sleep(0)
        return successor


def on_stage(work):
    async def whole():
        stage = Stage()
        await stage.up()
        try:
            await work(stage)
        finally:
            await stage.supervisor.close()

    asyncio.run(whole())


def test_all_workers_are_connected_with_an_engine_that_took_anothers_place():
    async def work(stage):
        engine = await stage.lose(stage.engines[1])
        assert engine.started
        for worker in stage.staff.workers:
            assert worker.handle.peers["engine"] == [stage.engines[0].handle, engine]

    on_stage(work)


def test_a_new_worker_is_built_with_the_engines_that_are_there():
    async def work(stage):
        engine = await stage.lose(stage.engines[0])
        worker = await stage.lose(stage.staff.workers[0])
        assert worker.peers["engine"][0] is engine

    on_stage(work)


def test_an_engine_replaced_while_a_worker_started_is_connected_with_it():
    async def work(stage):
        stage.held["rollout"].clear()
        post = stage.staff.workers[0]
        dead = post.handle
        dead.kill()
        engine = await stage.lose(stage.engines[0])
        assert post.handle is dead
        stage.held["rollout"].set()
        worker = await stage.supervisor.guard(post.successor(dead))
        for _ in range(10):
            await asyncio.sleep(0)
        assert worker.peers["engine"][0] is engine

    on_stage(work)


def test_an_engine_that_comes_after_both_died_is_connected_with_the_new_worker():
    async def work(stage):
        stage.held["engine"].clear()
        stage.engines[0].handle.kill()
        worker = await stage.lose(stage.staff.workers[0])
        stage.held["engine"].set()
        for _ in range(20):
            await asyncio.sleep(0)
        assert worker.peers["engine"][0] is stage.engines[0].handle
        assert not stage.engines[0].handle.gone.is_set()

    on_stage(work)
