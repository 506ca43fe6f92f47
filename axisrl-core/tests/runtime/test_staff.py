"""Every worker calls the peers that are there, whoever was replaced while whoever started."""

import asyncio
from types import SimpleNamespace

from axisrl.errors import ActorGone
from axisrl.runtime.staff import Kind, Staff
from axisrl.runtime.supervisor import RestartBudget, Supervisor


class Actor:
    def __init__(self, peers=None):
        self.peers = {kind: list(them) for kind, them in (peers or {}).items()}
        self.gone, self.started, self.pid = asyncio.Event(), False, 1
        self.broken = False

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
        self.supervisor = Supervisor(RestartBudget(10), 60.0, 60.0)
        self.spawned, self.broken = [], False
        self.held = {name: asyncio.Event() for name in ("engine", "judge", "rollout")}
        for event in self.held.values():
            event.set()

    async def engine(self, rank, peers):
        await self.held["engine"].wait()
        engine = self._placed(f"engine {rank}", Actor())
        engine.broken, self.broken = self.broken, False
        self.spawned.append(engine)
        return engine

    async def judge(self, rank, peers):
        await self.held["judge"].wait()
        return self._placed(f"judge {rank}", Actor(peers))

    async def worker(self, rank, peers):
        await self.held["rollout"].wait()
        return self._placed(f"rollout {rank}", Actor(peers))

    def _placed(self, name, actor):
        self.placement.actors[name] = actor
        return actor

    async def started(self, rank, engine):
        if engine.broken:
            raise ActorGone("it died while it started")
        engine.started = True

    async def up(self):
        self.engines = await self.staff.place(
            "engine", 2, Kind(spawn=self.engine, start=self.started)
        )
        await self.staff.start("engine")
        judge = Kind(spawn=self.judge, start=self.started, calls=("engine",))
        self.judges = await self.staff.place("judge", 1, judge)
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


def test_an_engine_that_fails_to_start_gives_its_place_to_the_next():
    async def work(stage):
        stage.broken = True
        engine = await stage.lose(stage.engines[0])
        *_, failed, next_one = stage.spawned
        assert failed.gone.is_set()
        assert engine is next_one and engine.started and not engine.gone.is_set()

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


def test_a_peer_that_calls_others_is_connected_with_one_that_took_anothers_place():
    async def work(stage):
        engine = await stage.lose(stage.engines[1])
        judge = stage.judges[0].handle
        assert judge.peers == {"engine": [stage.engines[0].handle, engine]}

    on_stage(work)


def test_a_new_peer_is_built_with_what_it_calls_and_callers_are_told_of_it():
    async def work(stage):
        engine = await stage.lose(stage.engines[0])
        judge = await stage.lose(stage.judges[0])
        assert judge.peers == {"engine": [engine, stage.engines[1].handle]}
        assert stage.staff.workers[1].handle.peers["judge"] == [judge]
        assert "judge" not in judge.peers

    on_stage(work)


def test_what_was_replaced_while_a_peer_that_calls_it_started_is_connected_with_it():
    async def work(stage):
        stage.held["judge"].clear()
        post = stage.judges[0]
        dead = post.handle
        dead.kill()
        engine = await stage.lose(stage.engines[0])
        assert post.handle is dead
        stage.held["judge"].set()
        judge = await stage.supervisor.guard(post.successor(dead))
        for _ in range(10):
            await asyncio.sleep(0)
        assert judge.peers["engine"][0] is engine

    on_stage(work)
