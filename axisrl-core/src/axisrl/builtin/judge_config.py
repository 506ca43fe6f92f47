"""Options of ``core/judge``. Imports nothing but the config base."""

from __future__ import annotations

import string
from dataclasses import dataclass

from axisrl.config.base import Config

RESPONSE = "response"
"""Name under which a prompt shows what is judged; every other name is a field of the task."""

_PROMPT = """\
Judge how right the response to this question is, compared with the reference answer.

Question:
{question}

Reference answer:
{reference}

Response to judge:
{response}
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgeConfig(Config):
    """``core/judge``."""

    base_url: str
    """Endpoint up to ``/v1``: ``https://api.openai.com/v1``, ``http://localhost:8000/v1``."""
    model: str
    """Name of the judge at that endpoint."""
    api_key_env: str = ""
    """Name of the environment variable that holds the key; empty where the endpoint asks for none.
    Rollout workers read it: on a cluster it must be set on their nodes."""
    prompt: str = _PROMPT
    """What the judge is asked. ``{response}`` is the policy's last message, ``{any_other}`` that
    field of the task; ``{{`` and ``}}`` are braces."""
    min_score: float = 0.0
    """Lowest score the judge may give; the verdict's 0."""
    max_score: float = 10.0
    """Highest score the judge may give; the verdict's 1."""
    pass_at: float = 0.5
    """Verdict, from 0 to 1, from which on the rollout passes."""
    temperature: float = 0.0
    """At which the judge answers; 1 for models that take no other."""
    max_tokens: int = 1024
    """Most tokens of a judgement; 0 sets no limit."""
    max_chars: int = 20_000
    """A longer response is shown without its middle."""
    timeout_s: float = 20.0
    """One request. All of them, and the wait for a free place, end with
    ``rollout.score_timeout_s``."""
    max_retries: int = 2
    """Further requests after a time-out, a lost connection, or status 408, 409, 429 or 5xx."""
    max_concurrency: int = 16
    """Requests at once from one rollout worker."""

    def __post_init__(self) -> None:
        _check_prompt(self.prompt)
        if not self.min_score < self.max_score:
            raise ValueError(f"min_score {self.min_score} is not below max_score {self.max_score}")
        if not 0 <= self.pass_at <= 1:
            raise ValueError(f"pass_at {self.pass_at} is not in [0, 1]")
        if self.timeout_s <= 0:
            raise ValueError(f"timeout_s {self.timeout_s} is not above 0")
        least = {"temperature": 0, "max_tokens": 0, "max_chars": 2, "max_retries": 0}
        for name, low in {**least, "max_concurrency": 1}.items():
            if getattr(self, name) < low:
                raise ValueError(f"{name} {getattr(self, name)} is below {low}")


def prompt_fields(prompt: str) -> set[str]:
    """Names that a prompt shows. Raises ``ValueError`` where it is no template."""
    return {name for _, name, _, _ in string.Formatter().parse(prompt) if name is not None}


def _check_prompt(prompt: str) -> None:
    try:
        parsed = list(string.Formatter().parse(prompt))
    except ValueError as problem:
        raise ValueError(f"prompt is no template ({problem}); write {{{{ for a brace") from problem
    for _, name, spec, conversion in parsed:
        if name is not None and (not name.isidentifier() or spec or conversion):
            raise ValueError(f"prompt: {{{name}}} must be the plain name of a field")
    if RESPONSE not in prompt_fields(prompt):
        raise ValueError(f"prompt shows no {{{RESPONSE}}}: the judge would not see what it judges")
