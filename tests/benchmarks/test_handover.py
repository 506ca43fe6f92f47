"""Tests of benchmarks/handover.py: whose turn it is, and what is printed."""

import asyncio

import pytest


@pytest.fixture
def bench():
    return pytest.importorskip("handover", reason="the local plugin needs torch")


def test_a_line_tells_how_fast_what_moved(bench):
    line = bench.Line(name="policy comes", seconds=[0.5, 1.0, 2.0])
    line.moved, line.held = 4 * bench.GIB, 6 * bench.GIB
    cells = ["policy comes", "1.00 (0.5 to 2.00)", "4.00", "4.00", "6.00"]
    assert line.cells() == cells


def test_the_summary_counts_the_largest_turn_and_leaves_the_weight_sync_out(bench):
    lines = [
        bench.Line(name="engine goes", seconds=[1.0], moved=bench.GIB, held=0.0),
        bench.Line(name="(weight sync)", seconds=[9.0], held=3 * bench.GIB),
        bench.Line(name="policy comes", seconds=[2.0], moved=bench.GIB, held=2 * bench.GIB),
    ]
    told = bench.summary(lines, 8 * bench.GIB)
    assert told == ("largest turn 3.00 GiB, all at once 8.00 GiB; hand-overs of a step 3.00 s")
    assert bench.row(lines, 8 * bench.GIB, ["machine", "model"]).endswith(
        "| machine | model | 2.00 | 3.00 | 3.00 | 8.00 |"
    )


def test_a_round_leaves_the_engine_serving_and_the_models_away(bench, tmp_path):
    from axisrl.errors import RunFailed
    from axisrl.types import ModelSpec
    from shapes import folder_of

    args = bench.parse(["--device", "cpu", "--dtype", "float32", "--rows", "2", "--context", "40"])
    folder = folder_of("tiny", tmp_path / "cache", tmp_path)
    spec = ModelSpec(name="tiny", path=folder, device="cpu")

    async def run():
        pair = await bench.started(spec, args, tmp_path)
        try:
            lines = await bench.measured(pair, spec, 1)
            for trainer in (pair.policy, pair.value):
                with pytest.raises(RunFailed, match="moved off the device"):
                    trainer.weight_update(9)
            answer = await pair.engine.generate(bench.request(0, 40))
            return lines, answer
        finally:
            await pair.stop()

    lines, answer = asyncio.run(run())
    assert all(len(line.seconds) == 1 for line in lines) and len(lines) == 13
    assert answer.versions.tolist() == [2]
