"""Tests of axisrl.ops.cuda_ipc."""

import base64
import json
import multiprocessing

import pytest
import torch

from axisrl.ops.cuda_ipc import describe, open_described, rebuild_arguments

PLAIN = {
    "storage_size_bytes": 512,
    "storage_offset_bytes": 64,
    "ref_counter_offset": 3,
    "event_sync_required": True,
    "device": "GPU-1",
    "bytes": 500,
    "offset": 8,
}
RAW = {"handle": b"h\xff", "ref_counter_handle": b"/c", "event_handle": b"\x00e"}


def test_a_description_is_what_torch_rebuilds_from():
    described = PLAIN | {name: base64.b64encode(raw).decode() for name, raw in RAW.items()}
    arguments = rebuild_arguments(json.loads(json.dumps(described)))
    assert arguments[1:4] == (torch.Size([500]), (1,), 8)
    assert arguments[6:10] == ("GPU-1", b"h\xff", 512, 64)
    assert arguments[11:] == (b"/c", 3, b"\x00e", True)


def _sum_in_another_process(described, answers):
    answers.put(int(open_described(described).sum()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_another_process_reads_the_same_memory():
    tensor = torch.arange(100, dtype=torch.uint8, device="cuda")
    processes = multiprocessing.get_context("spawn")
    answers = processes.Queue()
    reader = processes.Process(
        target=_sum_in_another_process, args=(json.loads(json.dumps(describe(tensor))), answers)
    )
    reader.start()
    assert answers.get(timeout=60) == 4950
    reader.join()
