"""Decides whether a sampled token ends its request: stop tokens and stop strings.

For engines that look at tokens as they come. It does not count them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

_INCOMPLETE = "�"


class StopRule:
    """State of one request. ``decode`` gives the text of ids, special tokens included; ``before``
    are tokens of this model call that came with the prompt."""

    def __init__(
        self,
        ids: frozenset[int],
        strings: Sequence[str],
        decode: Callable[[Sequence[int]], str],
        before: Sequence[int] = (),
    ) -> None:
        self._ids = ids
        self._strings = tuple(text for text in strings if text)
        self._decode = decode
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
