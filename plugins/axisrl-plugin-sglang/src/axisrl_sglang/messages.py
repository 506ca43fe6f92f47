"""What an engine and its SGLang process tell each other. Imports neither torch nor SGLang."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from axisrl.types import Payload

RESERVED = 6
"""Positions at the end of a context that SGLang leaves empty: it takes no prompt that reaches them,
and ends requests before."""


NOTHING_SENT = "nothing"
"""Transport of an update that only has SGLang's ranks look at the model they loaded themselves."""


class About(NamedTuple):
    """What serves, once it does."""

    version: str
    """SGLang's."""
    context: int
    """Most tokens of a prompt and its answer; 0 for a part on a machine where SGLang does not
    serve."""
    vocabulary: int
    """Ids that the model knows."""
    capacity: int
    """Tokens whose keys and values fit at once."""
    features: frozenset[str]
    """What this SGLang can do, as it was started, beyond what every one can: ``sampling_mask``."""


class Experts(NamedTuple):
    """What a mixture's router chooses from."""

    layers: int
    """All of the model's, those without experts among them."""
    top_k: int
    choices: int
    """Experts of a layer."""


class Ask(NamedTuple):
    """One request."""

    rid: str
    """No request's is the beginning of another's: SGLang aborts by prefix."""
    input_ids: list[int]
    sampling: Mapping[str, Any]
    """SGLang's sampling parameters."""
    masked: bool
    """Log-probabilities are wanted among the tokens that top-k, top-p and min-p leave."""
    routing_from: int | None = None
    """First token whose experts are wanted, with those of every later one."""
    experts: Experts | None = None


class Output(NamedTuple):
    """A request that is over."""

    ids: list[int]
    logprobs: list[float]
    finish: str
    """``stop``, ``length`` or ``abort``."""
    cached: int
    """Tokens of the prompt that were not computed again."""
    routing: Payload | None = None
    """Experts, (tokens, layers, top_k)."""
    passes: int = 0
    """Forward passes of the model that they were sampled in; 0 where SGLang does not tell."""


class Weights(NamedTuple):
    """A weight update, as the SGLang process needs to know it."""

    version: int
    transport: str
    location: str
    """A safetensors file, a model's folder, the description of shared buckets, or where buckets
    are sent from."""
    checksum: str
    """Of what must arrive; empty where that is whatever is there."""
    verify: bool
    receiver: str = ""
    """This engine, by a name that no other has."""
    receivers: int = 1
    """Engines that take the update at once."""


class Adapter(NamedTuple):
    """A low-rank adapter, as the SGLang process needs to know it."""

    version: int
    location: str
    """A safetensors file."""
    checksum: str
    rank: int
    scale: float
    targets: tuple[str, ...]
    """Last names of the modules it acts on."""


class Report(NamedTuple):
    """What one rank of SGLang found when it loaded an update."""

    checksum: str = ""
    """Of the tensors it received."""
    problem: str = ""
    """Why it does not serve them; empty when it does."""
    changed: bool = False
    """The weights it served before are no longer whole."""
