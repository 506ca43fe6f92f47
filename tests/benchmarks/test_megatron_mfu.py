"""Tests of benchmarks/megatron_mfu.py: what it counts. What it measures needs a GPU."""

import importlib.util

import numpy as np
import pytest
import torch

from axisrl.types import PackedBatch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("megatron") is None, reason="needs megatron-core"
)
CONFIG = {"hidden_size": 4, "num_attention_heads": 2, "num_hidden_layers": 3}
WEIGHTS = {
    "model.embed_tokens.weight": torch.zeros(10, 4),
    "model.layers.0.mlp.up_proj.weight": torch.zeros(8, 4),
    "model.norm.weight": torch.zeros(4),
}


@pytest.fixture
def mfu():
    return pytest.importorskip("megatron_mfu", reason="its trainers' plugins need torch")


def batch(*lengths, trained):
    starts = np.cumsum([0, *lengths]).astype(np.int32)
    mask = np.arange(starts[-1]) < trained
    return PackedBatch(
        rank=0,
        rows=tuple(range(len(lengths))),
        row_starts=starts,
        positions=np.zeros(starts[-1], np.int32),
        columns={"loss_mask": mask},
    )


def test_the_embedding_counts_as_the_output_matrix_and_norms_do_not_count(mfu):
    assert mfu.shape_of(CONFIG, WEIGHTS) == mfu.Shape(layers=3, body=32, head=40, attention=4)


def test_the_head_counts_where_a_token_is_trained_and_attention_inside_rows(mfu):
    shape = mfu.Shape(layers=3, body=32, head=40, attention=4)
    got = mfu.operations(shape, batch(5, 2, trained=4))
    assert got == 6 * (7 * 32 + 4 * 40) + 6 * (25 + 4) * 4 * 3
