"""Partial rollouts: a model call that was interrupted, as one call.

The random number of a request's i-th token depends on its seed and i alone, so an interrupted call
under unchanged weights draws what the whole one would have drawn.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np

from axisrl.types import GenerateRequest, GenerateResult


def continued(call: GenerateRequest, pieces: Sequence[GenerateResult]) -> GenerateRequest:
    """The rest of ``call`` after what was already sampled; its budget counts all of it."""
    if not pieces:
        return call
    said = np.concatenate([piece.ids for piece in pieces])
    start = call.routing_from
    if start is not None:
        # A token's experts are those it was sampled with: later weights do not choose again.
        start += sum(handle.shape[0] for piece in pieces for handle in piece.routing)
    return dataclasses.replace(
        call,
        id=f"{call.id}+{len(pieces)}",
        prompt_ids=np.concatenate([call.prompt_ids, said]),
        sampled_before=call.sampled_before + len(said),
        routing_from=start,
    )


def joined(pieces: Sequence[GenerateResult]) -> GenerateResult:
    """One result of several, the last of which says how the call ended. Each token keeps the
    version and log-probability it was sampled with."""
    last = pieces[-1]
    return dataclasses.replace(
        last,
        ids=np.concatenate([piece.ids for piece in pieces]),
        logprobs=np.concatenate([piece.logprobs for piece in pieces]),
        versions=np.concatenate([piece.versions for piece in pieces]),
        cached_tokens=sum(piece.cached_tokens for piece in pieces),
        routing=tuple(handle for piece in pieces for handle in piece.routing),
        passes=sum(piece.passes for piece in pieces),
    )
