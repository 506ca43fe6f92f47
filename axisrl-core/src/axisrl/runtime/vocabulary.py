"""Checks that models which read the policy's token ids mean the same tokens by them.

A value model, a teacher and saved rollouts never see text. It compares tokenizers, not sizes: a
larger output layer, or tokens on top of the policy's, do no harm.
"""

from __future__ import annotations

from axisrl.errors import ConfigError
from axisrl.runtime.chat import read_vocabulary
from axisrl.types import ModelSpec


def check_same_tokens(key: str, model: ModelSpec, policy: ModelSpec) -> None:
    """Raise ``ConfigError`` that names ``key`` unless ``model`` has every token of ``policy`` under
    the same id."""
    if model.path == policy.path:
        return
    theirs, ours = read_vocabulary(model.path), read_vocabulary(policy.path)
    other = [token for token in ours if theirs.get(token) != ours[token]]
    if not other:
        return
    first = min(other, key=ours.__getitem__)
    found = f"has the id {theirs[first]}" if first in theirs else "is not there"
    raise ConfigError(
        f"{key}: {model.name} has another tokenizer than {policy.name}: {first!r}, which is "
        f"{ours[first]} to the policy, {found} ({len(other)} of {len(ours)} tokens differ)",
        fix=f"choose a model of the same family for {key}: it reads the policy's token ids",
    )
