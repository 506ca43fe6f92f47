"""Draws one token a row from logits, and tells its log-probability under what it was drawn from.

1. Logits are divided by the temperature, then top-k, top-p and min-p remove tokens, in that order,
   each on what the one before left. Tokens tied with the last one kept are kept.
2. A token is found by inversion: the row's random number in [0, 1) times the sum of the
   probabilities, looked up in sums over blocks and then within one block. One full-size buffer
   serves all of it.
3. Temperature 0 takes the largest logit; its logprob is that of the softmax at temperature 1.
4. The random number of token i of a request is a hash of (seed, i): it depends on nothing else.

Each row is computed from that row alone. Shapes: S rows, V tokens of the vocabulary.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from axisrl.types import SamplingParams

_BLOCK = 256
_NUCLEUS = 1024


class Draw(NamedTuple):
    """How one row is drawn; ``uniform`` is its random number."""

    sampling: SamplingParams
    uniform: float


IDLE = Draw(SamplingParams(), 0.0)
"""For rows nobody asked for."""


class Drawn(NamedTuple):
    """``tokens`` int64[S] and ``logprobs`` float64[S], on the device."""

    tokens: Tensor
    logprobs: Tensor


def uniform(seed: int, index: int) -> float:
    """The random number in [0, 1) of the ``index``-th sampled token of a request."""
    digest = hashlib.blake2b(f"{seed}:{index}".encode(), digest_size=8).digest()
    return (int.from_bytes(digest, "little") >> 11) * 2.0**-53


class Sampler:
    """Owns the buffer: float32[rows, V rounded up to blocks]."""

    def __init__(self, rows: int, vocabulary: int, device: torch.device) -> None:
        self._vocabulary = vocabulary
        self._shape = (rows, -(-vocabulary // _BLOCK) * _BLOCK)
        self._device = device
        self.restore()

    def __call__(self, logits: Tensor, draws: Sequence[Draw]) -> Drawn:
        """One token for each row of ``logits`` (S, V); ``draws`` has S entries."""
        params = [draw.sampling for draw in draws]
        temperature = _column([p.temperature or 1.0 for p in params], logits.device)
        buffer = self._buffer[: len(draws)]
        scaled = buffer[:, : self._vocabulary]
        torch.div(logits, temperature, out=scaled)
        buffer[:, self._vocabulary :] = float("-inf")
        greedy = [p.temperature == 0 for p in params]
        best = scaled.argmax(1) if any(greedy) else None
        self._filter(scaled, params)
        peak = scaled.amax(1, keepdim=True)
        weights = buffer.sub_(peak).exp_()
        uniforms = _column([draw.uniform for draw in draws], logits.device, torch.float64)
        tokens, total = _invert(weights, uniforms)
        # Rows of NaN find nothing; their logprob is NaN, which the engine reports.
        tokens.clamp_(max=self._vocabulary - 1)
        if best is not None:
            tokens = torch.where(torch.tensor(greedy, device=logits.device), best, tokens)
        chosen = logits.gather(1, tokens[:, None]).float() / temperature - peak
        return Drawn(tokens, chosen[:, 0].double() - total.log())

    def free(self) -> None:
        """Hold nothing until :meth:`restore`."""
        self._buffer = torch.empty(0)

    def restore(self) -> None:
        """Undo :meth:`free`."""
        self._buffer = torch.empty(self._shape, device=self._device)

    @staticmethod
    def _filter(scaled: Tensor, params: Sequence[SamplingParams]) -> None:
        rows = [row for row, p in enumerate(params) if p.temperature and _limited(p)]
        if not rows:
            return
        index = torch.tensor(rows, device=scaled.device)
        scaled[index] = limit(scaled[index], [params[row] for row in rows])


def limit(scaled: Tensor, params: Sequence[SamplingParams]) -> Tensor:
    """``scaled`` (n, V), changed in place: -inf where top-k, top-p or min-p removes a token."""
    vocabulary = scaled.shape[1]
    top_k = [min(p.top_k or vocabulary, vocabulary) for p in params]
    if any(k < vocabulary for k in top_k):
        _keep(scaled, _kth(scaled, top_k))
    if any(p.top_p < 1 for p in params):
        top_p = _column([p.top_p for p in params], scaled.device, torch.float64)
        _keep(scaled, _nucleus(scaled, top_p))
    if any(p.min_p > 0 for p in params):
        share = _column([p.min_p for p in params], scaled.device)
        _keep(scaled, scaled.amax(1, keepdim=True) + share.log())
    return scaled


def _limited(params: SamplingParams) -> bool:
    return params.top_k > 0 or params.top_p < 1 or params.min_p > 0


def _keep(scaled: Tensor, threshold: Tensor) -> None:
    scaled.masked_fill_(scaled < threshold, float("-inf"))


def _kth(scaled: Tensor, top_k: Sequence[int]) -> Tensor:
    """(n, 1): the smallest value each row keeps; -inf where the row keeps all."""
    vocabulary = scaled.shape[1]
    widest = max(k for k in top_k if k < vocabulary)
    values = scaled.topk(widest, dim=1).values
    last = torch.tensor([min(k, widest) - 1 for k in top_k], device=scaled.device)
    everything = torch.tensor([k == vocabulary for k in top_k], device=scaled.device)
    kth = values.gather(1, last[:, None])
    return kth.masked_fill_(everything[:, None], float("-inf"))


def _nucleus(scaled: Tensor, top_p: Tensor) -> Tensor:
    """(n, 1): the smallest value of the smallest set whose probability reaches ``top_p``.

    Most nuclei are small: the largest 1,024 values are looked at first, all only if they must.
    """
    norm = scaled.logsumexp(1, keepdim=True)
    everything = top_p >= 1
    for width in (min(_NUCLEUS, scaled.shape[1]), scaled.shape[1]):
        values = scaled.topk(width, dim=1).values
        mass = (values - norm).double().exp().cumsum(1)
        if bool((everything | (mass[:, -1:] >= top_p)).all()):
            break
    last = (mass < top_p).sum(1, keepdim=True).clamp_(max=width - 1)
    return values.gather(1, last).masked_fill_(everything, float("-inf"))


def _invert(weights: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Tokens int64[S] and the sum float64[S] of each row of ``weights`` (S, blocks * _BLOCK)."""
    blocks = weights.view(len(weights), -1, _BLOCK)
    ends = blocks.sum(2).double().cumsum_(1)
    total = ends[:, -1:]
    target = _below(uniforms * total, total)
    block = torch.searchsorted(ends, target, right=True).clamp_(max=blocks.shape[1] - 1)
    before = ends.gather(1, (block - 1).clamp_(min=0)).masked_fill_(block == 0, 0.0)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, _BLOCK))[:, 0].double().cumsum_(1)
    rest = _below(target - before, inside[:, -1:])
    return (block * _BLOCK + torch.searchsorted(inside, rest, right=True))[:, 0], total[:, 0]


def _below(value: Tensor, end: Tensor) -> Tensor:
    """``value``, or the number before ``end`` where rounding reached it: the search then never
    leaves the tokens of positive weight."""
    return torch.minimum(value, torch.nextafter(end, torch.zeros_like(end)))


def _column(
    values: Sequence[float], device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)[:, None]
