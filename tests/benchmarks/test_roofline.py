"""Tests of benchmarks/roofline.py: counts of work, and what is printed from them."""

from pathlib import Path

import pytest


@pytest.fixture
def bench():
    import roofline

    return roofline


@pytest.fixture
def size():
    from shapes import ModelSize

    return ModelSize(body=100, head=10)


@pytest.fixture
def result(bench):
    from probe import Work
    from report import Spread

    work = Work(body=4, head=2, backward=True)
    return bench.Result(name="train", work=work, seconds=Spread(2.0, 1.0, 3.0))


def test_a_forward_token_needs_two_operations_a_parameter(bench, size):
    from probe import Work

    assert bench.needed_flops(Work(body=1, head=0), size) == 200
    assert bench.needed_flops(Work(body=3, head=1), size) == 620


def test_backward_makes_six_operations_a_parameter(bench, size, result):
    assert bench.needed_flops(result.work, size) == 6 * (400 + 20)


def test_the_share_is_of_the_measured_peak(bench, size, result):
    peak = bench.Peak(flops=12600.0, bandwidth=1.0)
    assert result.cells(size, peak)[:4] == ["train", "2.00", "1.26e-06", "10%"]


def test_decoding_reads_every_matrix_once_a_pass(bench, size):
    from probe import Work
    from report import Spread

    work, seconds = Work(body=8, head=8), Spread(0.5, 0.5, 0.5)
    decode = bench.Result(name="decode", work=work, seconds=seconds)
    assert bench.weights_read_per_s(decode, 4, size, 2) == 2 * 110 * 2 / 0.5


def test_the_row_for_the_page_has_the_columns_of_the_page(bench, size, result):
    page = Path(bench.__file__).parents[1] / "docs/benchmarks.md"
    header = next(line for line in page.read_text().splitlines() if "GEMM, GFLOP/s" in line)
    peak = bench.Peak(flops=12600.0, bandwidth=1.0)
    row = bench.row([result] * 3, size, peak, ["machine", "model"])
    assert row.count("|") == header.count("|")


def test_a_timing_leaves_the_first_call_out(bench):
    import torch

    calls = []
    assert len(bench.timed(lambda: calls.append(1), torch.device("cpu"), 2)) == 2
    assert len(calls) == 3


def test_the_embedding_is_not_counted_and_the_head_is_counted_when_tied(tmp_path):
    from shapes import folder_of, size_of

    found = size_of(folder_of("tiny", tmp_path / "cache", tmp_path))
    layer = 64 * (64 + 32 + 32 + 64) + 3 * 64 * 128
    assert (found.body, found.head) == (2 * layer, 100 * 64)


def test_random_weights_have_the_asked_sizes_and_a_tokenizer(tmp_path):
    from axisrl.config.base import NoConfig
    from axisrl.runtime.chat import load_tokenizer
    from axisrl.types import BuildContext
    from axisrl_local.tiny import TinyModel
    from shapes import make_random, size_of

    tiny = TinyModel(NoConfig(), BuildContext(run_dir=tmp_path)).fetch(tmp_path / "cache")
    sizes = {
        "vocab_size": 128,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
    }
    folder = make_random(sizes, tiny, tmp_path / "random")
    assert size_of(folder).head == 128 * 32
    assert load_tokenizer(folder).stop_ids


def test_random_rows_train_on_their_answers_alone():
    from probe import random_samples

    rows = random_samples(3, 5, 2)
    assert [int(row.loss_mask.sum()) for row in rows] == [2, 2, 2]
    assert rows[0].loss_mask.tolist() == [False] * 4 + [True] * 2
    assert rows[0].ids[1:].tolist() == rows[0].labels[:-1].tolist()


def test_the_probes_run_and_count_what_they_did(tmp_path):
    from axisrl.types import ModelSpec
    from axisrl_local.config import EngineConfig
    from probe import EngineProbe, TrainerProbe, random_samples
    from shapes import folder_of

    spec = ModelSpec(
        name="tiny", path=folder_of("tiny", tmp_path / "cache", tmp_path), device="cpu"
    )
    config = EngineConfig(max_batch=2, max_context=64, step_tokens=8)
    engine = EngineProbe(spec, config, tmp_path)
    work = engine.run(5, 1)
    engine.stop()
    assert (work.body, work.head) == (2 * 4 + 2, 2)
    trainer = TrainerProbe(spec, random_samples(2, 5, 3), 64, tmp_path)
    trained = trainer.run()
    trainer.stop()
    assert (trained.body, trained.head, trained.backward) == (14, 6, True)
