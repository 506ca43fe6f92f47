"""Options of every component of this plugin. Imports neither torch nor reasoning-gym."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from axisrl.config.base import Config


@dataclass(frozen=True, kw_only=True, slots=True)
class Gsm8kConfig(Config):
    """Options of the dataset ``gsm8k/gsm8k``."""

    source: str = "openai/gsm8k"
    """A ``.jsonl`` or ``.parquet`` file, a folder with ``<split>.jsonl`` or ``<split>*.parquet``,
    or a Hugging Face dataset id (needs the extra ``datasets``)."""
    split: str = "train"
    """``train`` or ``test``; names the file in a folder and the task ids."""
    limit: int = 0
    """First so many rows; 0 is all."""

    def __post_init__(self) -> None:
        if self.limit < 0:
            raise ValueError(f"limit {self.limit} is below 0; 0 is all rows")


@dataclass(frozen=True, kw_only=True, slots=True)
class ArithmeticConfig(Config):
    """Options of the dataset ``gsm8k/arithmetic``."""

    generator: str = "chain_sum"
    """A reasoning-gym dataset whose answers are numbers: ``chain_sum``, ``basic_arithmetic``,
    ``products``, ``gsm_symbolic``, ..."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """That generator's own options, for instance ``min_digits``, ``max_digits``, ``min_terms``,
    ``max_terms``, ``operators``."""
    split: Literal["train", "held_out"] = "train"
    """A question belongs to one side for ever, whatever the seed: the two never overlap."""
    size: int = 1000
    """Distinct tasks."""
    seed: int = 0
    """Same seed, same tasks; the run's own seed does not change them."""
    wording: Literal["generator", "expression"] = "generator"
    """``generator``: the question as reasoning-gym words it; ``expression``: the bare expression,
    where the generator has one."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size {self.size} must be at least 1")
        if taken := sorted({"seed", "size"} & self.parameters.keys()):
            raise ValueError(f"set {taken[0]} beside parameters, not inside it")


@dataclass(frozen=True, kw_only=True, slots=True)
class Example(Config):
    """A solved problem shown before the task."""

    question: str
    answer: str
    """The worked solution, ending in ``#### N``."""


@dataclass(frozen=True, kw_only=True, slots=True)
class MathEnvConfig(Config):
    """Options of the environment ``gsm8k/math``."""

    system: str = ""
    """System message; empty sends none."""
    template: str = '{question} Let\'s think step by step and write the final answer after "####".'
    """The user's message; ``{question}`` is replaced."""
    examples: tuple[Example, ...] | Literal["builtin"] = ()
    """Solved problems before the task; ``builtin`` is one word problem."""
    example_style: Literal["turns", "text"] = "turns"
    """``turns``: each example is a user and an assistant message; ``text``: all of them stand in
    the one user message."""

    def __post_init__(self) -> None:
        if "{question}" not in self.template:
            raise ValueError("template does not contain {question}")


@dataclass(frozen=True, kw_only=True, slots=True)
class MathVerifierConfig(Config):
    """Options of the verifier ``gsm8k/math``."""

    mode: Literal["strict", "flexible"] = "strict"
    """``strict``: the last ``#### x`` is the answer. ``flexible``: where that holds no number, the
    last number of the text is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BoxedVerifierConfig(Config):
    """Options of the verifier ``gsm8k/boxed``."""

    timeout_s: float = 5.0
    """Seconds for one symbolic comparison; after it the verdict is an error, not a 0."""

    def __post_init__(self) -> None:
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s {self.timeout_s} must be above 0")


@dataclass(frozen=True, kw_only=True, slots=True)
class FormatRewardConfig(Config):
    """Options of the reward ``gsm8k/format``."""

    verdict: str = "correct"
    """Key of the verifier, under ``verifiers``, that says whether the answer is right."""
    format_weight: float = 0.1
    """Share of the reward for stating a number at all; the rest is for being right."""
    mode: Literal["strict", "flexible"] = "strict"
    """``strict``: the number must follow ``####``. ``flexible``: it may stand anywhere."""

    def __post_init__(self) -> None:
        if not 0 <= self.format_weight < 1:
            raise ValueError(f"format_weight {self.format_weight} is not in [0, 1)")
