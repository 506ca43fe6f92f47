"""What passing an array through a handle store costs, beside the plain ways to pass one.

    python benchmarks/handle_store.py
    python benchmarks/handle_store.py --sizes 4096 1048576 --store core/shm --repeat 20

A put and a get of random bytes in one process, the sides taking turns:

- ``core/shm`` beside a plain mapped file: written under /dev/shm (else the temporary folder),
  mapped and read once.
- ``core/ray`` beside plain ``ray.put`` and ``ray.get``, read once. Ray runs on this machine.

Every get reads the whole array: a store does so for its checksum, the plain sides take the sum of
the bytes as 64-bit numbers. What a store does beyond, and the plain sides do not: a CRC-32 at put
and at get, an owner by which a dead worker's arrays are freed, and with ``core/ray`` an actor that
keeps them when the worker that put them dies. What was put is released after each get, untimed.

Not measured: other machines, several processes at once, memory use. The first pass of each side is
left out.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import mmap
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from axisrl.builtin.config import SharedMemoryConfig
from axisrl.builtin.shm_handles import SharedMemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.protocols import HandleStore
from axisrl.types import BuildContext, Handle
from report import cpu_name, load_average, short, table, today, versions

Array = NDArray[np.uint8]
SIZES = (4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20)
STORES = ("core/shm", "core/ray")
HEADER = ("size", "store", "put, ms", "plain, ms", "ratio", "get, ms", "plain, ms", "ratio", "GB/s")


class Way(Protocol):
    """One way to pass an array on."""

    async def put(self, array: Array) -> Any:
        """What :meth:`get` takes."""
        ...

    async def get(self, name: Any) -> object:
        """Bring it back and read it."""
        ...

    async def drop(self, name: Any) -> None:
        """Free it."""
        ...


class Stored:
    """Through a handle store."""

    def __init__(self, store: HandleStore) -> None:
        self._store = store

    async def put(self, array: Array) -> Handle:
        """See :class:`Way`."""
        return await self._store.put(array, owner="benchmark")

    async def get(self, name: Handle) -> Array:
        """See :class:`Way`."""
        return await self._store.get(name)

    async def drop(self, name: Handle) -> None:
        """See :class:`Way`."""
        await self._store.release([name])


class MappedFile:
    """Through a file of a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0

    async def put(self, array: Array) -> Path:
        """See :class:`Way`."""
        self._count += 1
        path = self._folder / str(self._count)
        with path.open("wb", buffering=0) as file:
            view = array.data
            while len(view):
                view = view[file.write(view) :]
        return path

    async def get(self, name: Path) -> Array:
        """See :class:`Way`."""
        with name.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return read(np.frombuffer(mapped, np.uint8))

    async def drop(self, name: Path) -> None:
        """See :class:`Way`."""
        name.unlink()


class PlainRay:
    """Through Ray's own object store."""

    async def put(self, array: Array) -> list[Any]:
        """See :class:`Way`."""
        import ray

        return [ray.put(array)]

    async def get(self, name: list[Any]) -> Array:
        """See :class:`Way`."""
        return read(await name[0])

    async def drop(self, name: list[Any]) -> None:
        """See :class:`Way`."""
        name.clear()


def read(array: Array) -> Array:
    """The array, after all of it was looked at."""
    array[: len(array) // 8 * 8].view(np.uint64).sum()
    return array


class Cost(NamedTuple):
    """Least seconds of a put and of a get."""

    put: float
    get: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One size through a store and the plain way."""

    store: str
    size: int
    ours: Cost
    plain: Cost

    def cells(self) -> list[str]:
        """The columns of ``HEADER``."""
        rates = [self.size / sum(cost) / 1e9 for cost in (self.ours, self.plain)]
        cells = [size_name(self.size), self.store]
        for ours, plain in zip(self.ours, self.plain, strict=True):
            cells += [short(ours * 1e3), short(plain * 1e3), f"{ours / plain:.2f}"]
        return [*cells, " / ".join(short(rate) for rate in rates)]

    def facts(self) -> dict[str, Any]:
        """For ``--json``."""
        ratios = Cost(self.ours.put / self.plain.put, self.ours.get / self.plain.get)
        costs = {"ours": self.ours, "plain": self.plain, "ratio": ratios}
        return asdict(self) | {name: cost._asdict() for name, cost in costs.items()}


def size_name(size: int) -> str:
    """4 KiB, 16 MiB."""
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size / 1024:g} KiB"


async def measure(store: str, ways: tuple[Way, Way], size: int, repeat: int) -> Result:
    """``ways`` are the store's and the plain one, in this order."""
    array = np.random.default_rng(size).integers(0, 256, size, np.uint8)
    costs: list[list[Cost]] = [[], []]
    for _ in range(repeat + 1):
        for found, way in zip(costs, ways, strict=True):
            found.append(await _once(way, array))
    ours, plain = (Cost(*(min(column) for column in zip(*each[1:], strict=True))) for each in costs)
    return Result(store=store, size=size, ours=ours, plain=plain)


async def _once(way: Way, array: Array) -> Cost:
    begun = time.perf_counter()
    name = await way.put(array)
    stored = time.perf_counter()
    back = await way.get(name)
    done = time.perf_counter()
    del back
    await way.drop(name)
    return Cost(stored - begun, done - stored)


async def compare(args: argparse.Namespace, folder: Path) -> list[Result]:
    """Every size through every store that was asked for."""
    results = []
    for name in args.store:
        context = BuildContext(run_dir=folder)
        store, plain = _sides(name, context, folder)
        for size in args.sizes:
            repeat = max(3, min(args.repeat, (1 << 30) // size))
            results.append(await measure(name, (Stored(store), plain), size, repeat))
        await store.close()
        if name == "core/ray":
            import ray

            ray.shutdown()
    return results


def _sides(name: str, context: BuildContext, folder: Path) -> tuple[HandleStore, Way]:
    if name == "core/shm":
        return SharedMemoryHandleStore(SharedMemoryConfig(), context), MappedFile(folder)
    import ray

    from axisrl.builtin.ray_handles import RayHandleStore

    if not ray.is_initialized():
        ray.init(address="local", include_dashboard=False, log_to_driver=False)
    return RayHandleStore(NoConfig(), context), PlainRay()


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes")
    parser.add_argument("--store", nargs="+", choices=STORES, default=STORES)
    parser.add_argument(
        "--repeat", type=int, default=100, help="passes of each side; fewer of more than a GiB"
    )
    parser.add_argument("--json", type=Path, help="write the results here, too")
    return parser.parse_args(arguments)


def main() -> None:
    """Measure and print."""
    args = parse()
    print(f"{today()}, {cpu_name()}, load {load_average()}")
    print(versions(("axisrl-core", "numpy", "ray")))
    shared = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=shared if shared.is_dir() else None) as folder:
        results = asyncio.run(compare(args, Path(folder)))
    print(f"least of the passes, load at the end {load_average()}\n")
    print(table(HEADER, [each.cells() for each in results]))
    if args.json:
        args.json.write_text(json.dumps([each.facts() for each in results], indent=1))


if __name__ == "__main__":
    main()
