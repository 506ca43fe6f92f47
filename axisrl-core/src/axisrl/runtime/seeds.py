"""Seeds: one per model call, from (run seed, stream, group, task, member, turn); nothing else is
random in a rollout."""

from __future__ import annotations

import hashlib


def derive_seed(run_seed: int, *parts: str | int) -> int:
    """A 63-bit seed. Different parts give independent seeds; the same parts always give the same
    one."""
    text = "\x1f".join(str(part) for part in (run_seed, *parts))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 1
