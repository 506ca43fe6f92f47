"""Arithmetic tasks in GSM8K's answer format, made offline by reasoning-gym.

It does not invent problems itself, and a task never changes sides:

1. A question is held out or not by a hash of its words in sorted order. So whatever the seeds,
   sizes and parameters of two datasets, ``train`` and ``held_out`` share no question, and not a
   reordered one ("3 + 5" and "5 + 3") either.
2. The generator draws from a stream of its own for each (generator, seed): reasoning-gym adds the
   index to the seed, so neighbouring seeds would give shifted copies of one another.
3. Questions are distinct within a dataset.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
from collections.abc import Iterator
from typing import Any

from axisrl.errors import ConfigError
from axisrl.types import BuildContext, Task
from axisrl_gsm8k.answers import parse_number
from axisrl_gsm8k.config import ArithmeticConfig

_HELD_OUT_ONE_IN = 5
_DRAWS_PER_TASK = 50
_DRAWS_AT_LEAST = 10_000


class Arithmetic:
    """``size`` distinct tasks; ``data`` holds ``question`` and ``answer`` (``#### N``)."""

    def __init__(self, config: ArithmeticConfig, context: BuildContext) -> None:
        self._tasks = [
            Task(
                id=f"{config.generator}-{config.split}-{config.seed}-{index:05d}",
                data={"question": question, "answer": f"#### {answer}"},
            )
            for index, (question, answer) in enumerate(_distinct(config))
        ]

    def __len__(self) -> int:
        return len(self._tasks)

    def __getitem__(self, index: int) -> Task:
        return self._tasks[index]


def is_held_out(question: str) -> bool:
    """The side of a question, from its words alone."""
    words = " ".join(sorted(question.split()))
    digest = hashlib.blake2b(words.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") % _HELD_OUT_ONE_IN == 0


def _distinct(config: ArithmeticConfig) -> Iterator[tuple[str, str]]:
    draws = max(_DRAWS_AT_LEAST, config.size * _DRAWS_PER_TASK)
    generated = _generator(config, draws)
    seen = set[str]()
    for index in range(draws):
        entry = generated[index]
        question = _question(config, entry)
        if question in seen or is_held_out(question) != (config.split == "held_out"):
            continue
        seen.add(question)
        yield question, _checked_answer(config, entry)
        if len(seen) == config.size:
            return
    raise ConfigError(
        f"{config.generator} gave {len(seen)} distinct {config.split} questions in {draws} draws, "
        f"not {config.size}",
        fix=f"set size to {len(seen)} or less, or parameters that allow more questions",
    )


def _generator(config: ArithmeticConfig, draws: int) -> Any:
    # Imported here: it takes over a second, which neither --help nor a dry run should pay.
    from reasoning_gym.factory import DATASETS, create_dataset

    if config.generator not in DATASETS:
        raise ConfigError(
            f"reasoning-gym has no generator {config.generator!r}", fix=_nearest(config, DATASETS)
        )
    known = {each.name for each in dataclasses.fields(DATASETS[config.generator][1])}
    for name in config.parameters:
        if name not in known:
            raise ConfigError(
                f"{config.generator} has no parameter {name!r}",
                fix=f"it has: {', '.join(sorted(known - {'seed', 'size'}))}",
            )
    try:
        return create_dataset(
            config.generator, seed=_stream(config), size=draws, **config.parameters
        )
    # reasoning-gym validates with assert.
    except (AssertionError, TypeError, ValueError) as problem:
        raise ConfigError(
            f"{config.generator} refuses its parameters: {problem}",
            fix="correct dataset.parameters",
        ) from problem


def _stream(config: ArithmeticConfig) -> int:
    name = f"{config.generator}/{config.seed}"
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=6).digest(), "big")


def _nearest(config: ArithmeticConfig, names: Any) -> str:
    close = difflib.get_close_matches(config.generator, names, n=3)
    return f"did you mean {', '.join(close)}?" if close else "try chain_sum or gsm_symbolic"


def _question(config: ArithmeticConfig, entry: dict[str, Any]) -> str:
    if config.wording == "generator":
        return str(entry["question"])
    if "expression" not in entry["metadata"]:
        raise ConfigError(
            f"{config.generator} has no bare expression", fix="set wording to generator"
        )
    return str(entry["metadata"]["expression"])


def _checked_answer(config: ArithmeticConfig, entry: dict[str, Any]) -> str:
    answer = str(entry["answer"])
    if parse_number(answer) is None:
        raise ConfigError(
            f"{config.generator} has answers that are not numbers: {answer[:60]!r}",
            fix="use a generator with numeric answers, such as chain_sum or gsm_symbolic",
        )
    return answer
