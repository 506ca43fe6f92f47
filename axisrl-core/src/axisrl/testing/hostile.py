"""Texts a policy might write to break whoever reads them. Nothing here says what they are worth."""

from __future__ import annotations

from pathlib import Path

HOSTILE: tuple[str, ...] = (
    "",
    " \n\t ",
    "\x00\x01\x7f",
    "\ud800 half a surrogate pair",
    "\u202e\u0661\u0662\u0663 🙂" * 8,
    "9" * 100_000,
    "-" * 50_000 + "1",
    "9**9**9**9",
    "(" * 20_000,
    '{"a":' * 20_000,
    "#### ",
    "#### " * 5_000,
    "#### nan",
    "#### inf",
    "#### 1e999999999",
    "#### 1/0",
    "\\boxed{" * 2_000,
    "\\boxed{\\frac{1}{0}}",
    "{0.__class__} %s %n {{ 7 * 7 }} ${PATH}",
    '<tool_call>{"name": 3, "arguments": "no object"}</tool_call>',
    '<tool_call>{"name": "no_such_tool", "arguments": {}}</tool_call>',
    '<tool_call>{"name": "search", "argum',
    "</answer></answer><answer>" * 2_000,
    "a word and a space " * 20_000,
)


def canaries(path: Path) -> tuple[str, ...]:
    """Texts that create ``path`` when something evaluates them as Python or as a shell command."""
    python = f"__import__('pathlib').Path({str(path)!r}).touch()"
    shell = f"touch '{path}'"
    wrapped = [
        form.format(python) for form in ("{}", "#### {}", "\\boxed{{{}}}", "```python\n{}\n```")
    ]
    commands = [form.format(shell) for form in ("$({})", "`{}`", "; {} ;", "#### $({})")]
    return (*wrapped, *commands)
