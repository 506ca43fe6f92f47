"""What keeps the driver thin: how much of a rollout may pass through it, and how much does.

At most 1 KiB comes home from a rollout however long it is. Tokens and messages are in the store;
what else could grow is bounded here:

- ``task_id``: 64 bytes. A longer one is its beginning, ``~`` and 16 hex digits of its SHA-256. The
  whole id is in the rollout's record and in ``rollouts/*.jsonl``.
- ``parts``: in the order of the rewards, as long as they take 320 bytes together, each counting its
  name and 12. What finds no room is not logged.
- ``error``: 200 bytes.

A task's own data is the dataset's and is not bounded.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Mapping

SUMMARY_BYTES = 1024
"""Most bytes of a pickled :class:`axisrl.types.RolloutSummary`."""
_ID_BYTES = 64
_PARTS_BYTES = 320
_PART_BYTES = 12
_ERROR_BYTES = 200


def wire_bytes(message: object) -> int:
    """Bytes of ``message`` on its way from process to process."""
    return len(pickle.dumps(message, protocol=5))


def short_id(task_id: str) -> str:
    """The id as the driver knows it; of a short one, the id itself."""
    whole = task_id.encode(errors="replace")
    if len(whole) <= _ID_BYTES:
        return task_id
    ending = "~" + hashlib.sha256(task_id.encode(errors="surrogatepass")).hexdigest()[:16]
    return _cut(whole, _ID_BYTES - len(ending)) + ending


def short_error(error: str) -> str:
    """As much of an error's text as travels."""
    return _cut(error.encode(errors="replace"), _ERROR_BYTES)


def short_parts(parts: Mapping[str, float]) -> dict[str, float]:
    """The first parts that have room."""
    kept: dict[str, float] = {}
    room = _PARTS_BYTES
    for name, value in parts.items():
        room -= len(name.encode(errors="replace")) + _PART_BYTES
        if room < 0:
            break
        kept[name] = value
    return kept


def _cut(text: bytes, size: int) -> str:
    return text[:size].decode(errors="ignore")
