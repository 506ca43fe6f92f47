"""The one-turn environment: shows a problem, takes one answer, ends.

It does not judge the answer: that is a verifier's work.
"""

from __future__ import annotations

from axisrl.errors import EnvFailure
from axisrl.types import Action, BuildContext, Message, Observation, StepResult, Task
from axisrl_gsm8k.config import Example, MathEnvConfig

_BUILTIN = (
    Example(
        question=(
            "A baker fills 6 trays with 12 rolls each and sells 45 rolls. How many rolls are left?"
        ),
        answer=(
            "The baker makes 6 * 12 = 72 rolls.\n"
            "After selling 45 there are 72 - 45 = 27 rolls left.\n#### 27"
        ),
    ),
)


class MathEnv:
    """Reads ``question`` from the task."""

    def __init__(self, config: MathEnvConfig, context: BuildContext) -> None:
        self._config = config
        self._examples = _BUILTIN if config.examples == "builtin" else config.examples
        self._waiting = False

    async def reset(self, task: Task) -> Observation:
        """The prompt. Raises ``EnvFailure`` when the task has no question."""
        question = task.data.get("question")
        if not isinstance(question, str) or not question:
            raise EnvFailure(
                f"task {task.id} has no field 'question'",
                fix="use a dataset whose tasks have 'question' and 'answer'",
            )
        self._waiting = True
        return Observation(messages=(*self._opening(), *self._turns(question)))

    async def step(self, action: Action) -> StepResult:
        """Ends the rollout; an answer cut off by the token limit is ``truncated``."""
        if not self._waiting:
            raise RuntimeError("gsm8k/math takes one step after reset, and none after that")
        self._waiting = False
        truncated = action.finish_reason == "length"
        return StepResult(done=not truncated, truncated=truncated)

    async def close(self) -> None:
        """Nothing to free; no step is taken afterwards."""
        self._waiting = False

    def _opening(self) -> tuple[Message, ...]:
        if not self._config.system:
            return ()
        return (Message(role="system", content=self._config.system),)

    def _turns(self, question: str) -> list[Message]:
        if self._config.example_style == "text":
            shown = [f"{self._asked(each.question)}\n{each.answer}" for each in self._examples]
            return [Message(role="user", content="\n\n".join([*shown, self._asked(question)]))]
        turns = []
        for each in self._examples:
            turns.append(Message(role="user", content=self._asked(each.question)))
            turns.append(Message(role="assistant", content=each.answer))
        return [*turns, Message(role="user", content=self._asked(question))]

    def _asked(self, question: str) -> str:
        return self._config.template.replace("{question}", question)
