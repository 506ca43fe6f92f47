"""``core/judge``: a verdict from a language model behind any OpenAI-compatible endpoint.

1. The judge sees the task's fields and the policy's last message, and answers with a score on the
   scale it was given, which becomes 0 to 1. JSON mode is asked for until the endpoint refuses it.
2. Whatever keeps a judgement from being made (status, time-out, no score, a score off the scale) is
   a verdict without a score and never 0. A response without any text scores 0, unasked.
3. The response is data: marked as such to the judge (:mod:`axisrl.builtin.judgement`), and nothing
   of it is evaluated here. No mark makes a model immune to persuasion: look at what it rewards.

It reads no environment: the key comes from the context's service ``environ``. It keeps no
judgement; the same rollout judged twice is asked twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import openai

from axisrl.builtin.judge_config import JudgeConfig
from axisrl.builtin.judgement import messages_for, read_judgement, shortened
from axisrl.errors import EnvironmentProblem
from axisrl.protocols.verifier import Rollout
from axisrl.types import BuildContext, Task, Verdict

_NO_KEY = "none"
"""The client insists on one; endpoints without keys ignore it."""
_REFUSED = (openai.BadRequestError, openai.UnprocessableEntityError)
_DETAIL_CHARS = 500
_ERROR_CHARS = 300


class JudgeVerifier:
    """Raises ``EnvironmentProblem`` at construction when the key's variable is not set."""

    def __init__(self, config: JudgeConfig, context: BuildContext) -> None:
        self._config = config
        self._key = _key(config.api_key_env, context.services.get("environ", {}))
        self._scale = (config.min_score, config.max_score)
        self._json_mode = True
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: openai.AsyncOpenAI
        self._places: asyncio.Semaphore

    async def verify(self, task: Task, rollout: Rollout) -> Verdict:
        """See :meth:`axisrl.protocols.Verifier.verify`. Raises ``KeyError`` that names a field of
        the prompt which the task lacks."""
        response = shortened(rollout.answer, self._config.max_chars)
        messages = messages_for(self._config.prompt, task.data, response, self._scale)
        if not response.strip():
            return Verdict(score=0.0, detail="no answer")
        self._open()
        try:
            async with self._places:
                answer = await self._ask(messages)
            judgement = read_judgement(answer, self._scale)
        except (openai.OpenAIError, ValueError) as problem:
            return Verdict(score=None, error=self._told(problem))
        low, high = self._scale
        score = (judgement.score - low) / (high - low)
        passed = score >= self._config.pass_at
        return Verdict(score=score, passed=passed, detail=judgement.reason[:_DETAIL_CHARS])

    def _open(self) -> None:
        """A client and places of the running loop: their connections and waiters belong to one."""
        loop = asyncio.get_running_loop()
        if loop is not self._loop:
            config = self._config
            self._client = openai.AsyncOpenAI(
                base_url=config.base_url,
                api_key=self._key,
                timeout=config.timeout_s,
                max_retries=config.max_retries,
            )
            self._places = asyncio.Semaphore(config.max_concurrency)
            self._loop = loop

    async def _ask(self, messages: list[dict[str, str]]) -> str:
        if not self._json_mode:
            return await self._complete(messages)
        try:
            return await self._complete(messages, response_format={"type": "json_object"})
        except _REFUSED:
            answer = await self._complete(messages)
        self._json_mode = False  # only now is it known that this was what the endpoint refused
        return answer

    async def _complete(self, messages: Any, **options: Any) -> str:
        config = self._config
        if config.max_tokens:
            options["max_tokens"] = config.max_tokens
        done: Any = await self._client.chat.completions.create(
            model=config.model,
            messages=messages,
            temperature=config.temperature,
            **options,
        )
        try:
            content = done.choices[0].message.content
        except (AttributeError, IndexError, TypeError):
            raise ValueError("the endpoint's answer is no chat completion") from None
        return content if isinstance(content, str) else ""

    def _told(self, problem: Exception) -> str:
        """One line about what went wrong, without the key."""
        text = " ".join(f"{type(problem).__name__}: {problem}".split())
        if self._config.api_key_env:
            text = text.replace(self._key, "***")
        return text[:_ERROR_CHARS]


def _key(variable: str, environ: Mapping[str, str]) -> str:
    if not variable:
        return _NO_KEY
    key = environ.get(variable)
    if not key:
        raise EnvironmentProblem(
            f"core/judge needs the environment variable {variable}, which is not set",
            fix=f"set {variable} where the rollout workers run, or api_key_env: '' if the endpoint "
            "asks for no key",
        )
    return key
