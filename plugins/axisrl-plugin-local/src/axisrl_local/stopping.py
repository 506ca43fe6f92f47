"""Decides whether a sampled token ends its request: stop tokens and stop strings.

It does not count tokens (:mod:`axisrl_local.scheduler`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_INCOMPLETE = "�"


class StopRule:
    """State of one request. ``before`` are tokens of this model call that came with the prompt."""

    def __init__(
        self,
        ids: frozenset[int],
        strings: Sequence[str],
        tokenizer: Any,
        before: Sequence[int] = (),
    ) -> None:
        self._ids = ids
        self._strings = tuple(text for text in strings if text)
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._shown = 0
        self._next = 0
        self._tail = ""
        self._keep = max((len(text) for text in self._strings), default=1) - 1
        if self._strings:
            for token in before:
                self._text_stops(token)

    def stops(self, token: int) -> bool:
        """True when ``token`` is a stop token or completes a stop string."""
        return token in self._ids or (bool(self._strings) and self._text_stops(token))

    def _text_stops(self, token: int) -> bool:
        text = self._tail + self._decode_next(token)
        self._tail = text[max(0, len(text) - self._keep) :]
        return any(stop in text for stop in self._strings)

    def _decode_next(self, token: int) -> str:
        """The text ``token`` adds. Decoded with the tokens before it, since a tokenizer may join
        them; empty while a character is still incomplete."""
        self._tokens.append(token)
        known = self._decode(self._tokens[self._shown : self._next])
        text = self._decode(self._tokens[self._shown :])
        if len(text) <= len(known) or text.endswith(_INCOMPLETE):
            return ""
        self._shown, self._next = self._next, len(self._tokens)
        return text[len(known) :]

    def _decode(self, tokens: Sequence[int]) -> str:
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))
