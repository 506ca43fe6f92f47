"""Chat templates to token ids, turn by turn, without ever re-tokenising what was sampled.

1. :class:`ChatTokenizer` is the small interface everything else uses; :func:`load_tokenizer` gives
   the Hugging Face one.
2. :class:`Conversation` grows a :class:`axisrl.trace.Trace`: the first observation is rendered
   whole, and each later one adds only the text the template puts *after* the policy's own turn.
3. When a template's render of the longer history does not start with what the policy saw (stripped
   thoughts), or an environment replaces the history, the trace branches at the last node both
   share.

It does not parse tool calls: that is the environment's.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from axisrl.errors import EngineFailure, EnvironmentProblem
from axisrl.trace import Trace
from axisrl.types import Action, GenerateResult, IntArray, Message, Observation, SamplingParams


class ChatTokenizer(Protocol):
    """Text to ids and back, and a model's chat template."""

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens that end the policy's turn."""
        ...

    @property
    def vocab_size(self) -> int:
        """One more than the largest id."""
        ...

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``; special tokens written out in it are recognised, none are added."""
        ...

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Inverse of ``encode``."""
        ...

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        add_generation_prompt: bool,
    ) -> str:
        """The template's text for a list of chat messages."""
        ...


class HuggingFaceTokenizer:
    """A :class:`ChatTokenizer` on a transformers tokenizer."""

    def __init__(self, tokenizer: Any, stop_ids: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self.stop_ids = stop_ids
        self.vocab_size = len(tokenizer)

    def encode(self, text: str) -> list[int]:
        """Ids of ``text``."""
        return list(self._tokenizer(text, add_special_tokens=False)["input_ids"])

    def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
        """Text of ``ids``, spaces kept as they are."""
        return str(
            self._tokenizer.decode(
                np.asarray(ids, np.int64),  # transformers looks at every id of a list
                skip_special_tokens=skip_special,
                clean_up_tokenization_spaces=False,
            )
        )

    def render(
        self,
        messages: Sequence[dict[str, Any]],
        tools: Sequence[dict[str, Any]],
        add_generation_prompt: bool,
    ) -> str:
        """The template's text."""
        return str(
            self._tokenizer.apply_chat_template(
                list(messages),
                tools=list(tools) or None,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
            )
        )


def read_vocabulary(path: Path) -> dict[str, int]:
    """Token -> id of a model folder's tokenizer, which needs no chat template. Raises
    ``EnvironmentProblem`` when it is absent."""
    vocabulary: dict[str, int] = _read_tokenizer(path).get_vocab()
    return vocabulary


def load_tokenizer(path: Path) -> HuggingFaceTokenizer:
    """The tokenizer of a model folder. Raises ``EnvironmentProblem`` when it is absent or has no
    template."""
    tokenizer = _read_tokenizer(path)
    from transformers import GenerationConfig

    if not tokenizer.chat_template:
        raise EnvironmentProblem(
            f"the tokenizer in {path} has no chat template",
            fix="use the model's -Instruct version, or add chat_template.jinja to the folder",
        )
    try:
        eos = GenerationConfig.from_pretrained(path).eos_token_id
    except OSError:
        eos = None
    ends = eos if isinstance(eos, list) else [] if eos is None else [eos]
    if tokenizer.eos_token_id is not None:
        ends = [*ends, tokenizer.eos_token_id]
    return HuggingFaceTokenizer(tokenizer, frozenset(int(end) for end in ends))


def _read_tokenizer(path: Path) -> Any:
    try:
        from transformers import AutoTokenizer
    except ImportError as missing:
        raise EnvironmentProblem(
            "reading a model's tokenizer needs transformers",
            fix="pip install 'axisrl-core[chat]'",
        ) from missing
    try:
        return AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as problem:
        raise EnvironmentProblem(
            f"no tokenizer can be read from {path}: {problem}", fix="name another model folder"
        ) from problem


class Conversation:
    """One rollout's messages and the trace of the tokens behind them."""

    def __init__(self, tokenizer: ChatTokenizer) -> None:
        self.trace = Trace()
        self.messages: list[Message] = []
        self._tokenizer = tokenizer
        self._tools: tuple[dict[str, Any], ...] = ()
        self._leaf: int | None = None
        self._seen = ""
        """Text of the current path's last prompt and everything before it."""

    @property
    def context(self) -> IntArray:
        """Ids the next model call continues: int32[tokens]."""
        if self._leaf is None:
            raise EngineFailure("the conversation is empty: observe() comes before a model call")
        return self.trace.ids(self._leaf)

    @property
    def routed(self) -> int:
        """Tokens at the beginning of ``context`` whose experts are known."""
        return 0 if self._leaf is None else self.trace.routed(self._leaf)

    def observe(self, observation: Observation) -> None:
        """Take what the environment shows: extend the path, or branch when it cannot be
        extended."""
        if observation.tools:
            self._tools = tuple(dict(tool) for tool in observation.tools)
        history = [] if observation.replace else self.messages
        self.messages = [*history, *observation.messages]
        text = self._render(self.messages)
        turn = self.messages[len(history) - 1] if history else None
        delta = None if observation.replace or turn is None else self._extension(text, turn)
        if delta is None:
            self._branch(text)
        else:
            self._leaf = self.trace.append(
                "observation", self._tokenizer.encode(delta), parent=self._leaf
            )
        self._seen = text

    def act(self, result: GenerateResult, sampling: SamplingParams, seed: int) -> Action:
        """Add a model call's tokens and return them as an action."""
        if self._leaf is None:
            raise EngineFailure("the conversation is empty: observe() comes before act()")
        self._leaf = self.trace.append_sampled(
            result, parent=self._leaf, sampling=sampling, seed=seed
        )
        text = self._tokenizer.decode(result.ids.tolist())
        self.messages.append(Message(role="assistant", content=text))
        return Action(text=text, finish_reason=result.finish_reason)

    def _render(self, messages: Sequence[Message]) -> str:
        return self._tokenizer.render([m.to_chat() for m in messages], self._tools, True)

    def _extension(self, text: str, turn: Message) -> str | None:
        """What the template adds after the policy's turn, less the stop token if that was
        sampled."""
        for said in (turn.content, turn.content.strip()):  # some templates trim a message
            if text.startswith(self._seen + said):
                delta = text[len(self._seen + said) :]
                last = int(self.context[-1])
                if last in self._tokenizer.stop_ids:
                    delta = delta.removeprefix(self._tokenizer.decode([last], skip_special=False))
                return delta or None
        return None

    def _branch(self, text: str) -> None:
        """Start a path for ``text`` below the deepest node of the present path that it shares
        whole."""
        ids = np.asarray(self._tokenizer.encode(text), np.int32)
        parent, at = None, 0
        for node in self.trace.path(self._leaf) if self._leaf is not None else []:
            end = at + len(node.ids)
            # The branch must add a token of its own: a model call needs a node to hang from.
            if end >= len(ids) or not np.array_equal(ids[at:end], node.ids):
                break
            parent, at = node.id, end
        self._leaf = self.trace.append("prompt", ids[at:], parent=parent)
