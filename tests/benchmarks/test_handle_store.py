"""The handle store benchmark: what it compares is the same work, and its table is the page's."""

import asyncio
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from axisrl.builtin.memory_handles import MemoryHandleStore
from axisrl.config.base import NoConfig
from axisrl.types import BuildContext


@pytest.fixture
def bench(scripts):
    import handle_store

    return handle_store


@pytest.fixture
def ways(bench, tmp_path):
    store = MemoryHandleStore(NoConfig(), BuildContext(run_dir=tmp_path))
    return bench.Stored(store), bench.MappedFile(tmp_path)


def test_every_way_brings_back_what_was_put_and_leaves_nothing(ways, tmp_path):
    array = np.arange(1000, dtype=np.uint8)

    async def around(way):
        name = await way.put(array)
        back = np.array(await way.get(name))
        await way.drop(name)
        return back

    for way in ways:
        assert np.array_equal(asyncio.run(around(way)), array)
    assert list(tmp_path.iterdir()) == []


def test_the_first_pass_of_each_side_is_left_out_and_the_least_counts(bench, monkeypatch):
    found = iter([9.0, 8.0, 0.2, 0.4, 0.1, 0.3])

    async def once(way, array):
        seconds = next(found)
        return bench.Cost(seconds, seconds * 2)

    monkeypatch.setattr(bench, "_once", once)
    result = asyncio.run(bench.measure("core/shm", (None, None), 8, 2))
    assert result.ours == bench.Cost(0.1, 0.2)
    assert result.plain == bench.Cost(0.3, 0.6)


def test_the_ratio_is_ours_to_plains(bench):
    cost = {"ours": bench.Cost(0.004, 0.001), "plain": bench.Cost(0.002, 0.002)}
    result = bench.Result(store="core/shm", size=6_000_000, **cost)
    assert result.facts()["ratio"] == {"put": 2.0, "get": 0.5}
    assert result.cells()[2:] == ["4.00", "2.00", "2.00", "1.00", "2.00", "0.50", "1.20 / 1.50"]
    assert [bench.size_name(size) for size in (4096, 16 << 20)] == ["4 KiB", "16 MiB"]


def test_the_table_has_the_columns_of_the_page(bench):
    page = (Path(bench.__file__).parents[1] / "docs/benchmarks.md").read_text()
    assert "| " + " | ".join(bench.HEADER) + " |" in page


def test_the_whole_comparison_prints_its_table_and_writes_json(
    bench, monkeypatch, capsys, tmp_path
):
    out = tmp_path / "results.json"
    command = f"handle_store.py --sizes 64 4096 --store core/shm --repeat 3 --json {out}"
    monkeypatch.setattr(sys, "argv", command.split())
    bench.main()
    assert [(each["store"], each["size"]) for each in json.loads(out.read_text())] == [
        ("core/shm", 64),
        ("core/shm", 4096),
    ]
    assert "| 4 KiB" in capsys.readouterr().out
