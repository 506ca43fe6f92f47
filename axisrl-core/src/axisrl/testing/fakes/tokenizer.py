"""A tokenizer of one token a byte with a ChatML-like template. It has no vocabulary file and merges
nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

_SPECIALS = ("<|pad|>", "<|im_start|>", "<|im_end|>")
_SPLIT = re.compile("(" + "|".join(re.escape(special) for special in _SPECIALS) + ")")


class CharTokenizer:
    """A :class:`axisrl.runtime.chat.ChatTokenizer`: ASCII is one token a character, the rest one a
    UTF-8 byte."""

    stop_ids: frozenset[int] = frozenset({2})
    vocab_size: int = len(_SPECIALS) + 256

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``; ``<|im_end|>`` and its like written out are one token."""
        ids: list[int] = []
        for piece in _SPLIT.split(text):
            if piece in _SPECIALS:
                ids.append(_SPECIALS.index(piece))
            else:
                ids.extend(byte + len(_SPECIALS) for byte in piece.encode(errors="surrogatepass"))
        return ids

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Inverse of ``encode``; bytes that are not UTF-8 become U+FFFD."""
        text, run = [], bytearray()
        for token in ids:
            if token >= len(_SPECIALS):
                run.append(token - len(_SPECIALS))
                continue
            text.append(run.decode(errors="replace"))
            run.clear()
            if not skip_special:
                text.append(_SPECIALS[token])
        return "".join([*text, run.decode(errors="replace")])

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        add_generation_prompt: bool,
    ) -> str:
        """``<|im_start|>role\\ncontent<|im_end|>\\n`` a message, the tools before them as JSON."""
        parts = [_turn("system", json.dumps(list(tools), sort_keys=True))] if tools else []
        for message in messages:
            calls = message.get("tool_calls")
            content = message["content"] + (json.dumps(calls, sort_keys=True) if calls else "")
            parts.append(_turn(message["role"], content))
        if add_generation_prompt:
            parts.append("<|im_start|>assistant\n")
        return "".join(parts)


def _turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"
