r"""Finds the final answer in a text and reads it as an exact number.

It does not judge (:mod:`axisrl_gsm8k.verifier`) and never evaluates text: one regular expression
reads digits, and everything is linear in the length of the text.

1. The final answer is what follows the last ``####`` that is followed by something on its line.
2. A number may carry a sign, a currency, thousands separators, a fraction, a mixed number, a small
   exponent, a multiplier word, LaTeX or Markdown dressing, and a unit after it.
3. A second number beside it ("18 or 20") is no answer; after "=" only the right side counts.
"""

from __future__ import annotations

import re
from fractions import Fraction

_FINAL = re.compile(r"####[ \t]*([^\n#]+)")
_MAX_DIGITS = 100

_WHOLE = r"(?:[0-9]{1,3}(?:[, \u00a0\u202f][0-9]{3})+(?![0-9])|[0-9]+)"
_MAGNITUDE = rf"""
    (?: (?: (?P<mixed>[0-9]+) \s{{1,2}} )?
        (?P<numerator>[0-9]+) \s? [/\u2044] \s? (?P<denominator>[0-9]+) (?![0-9.])
      | (?P<decimal> {_WHOLE} (?:\.[0-9]*)? | \.[0-9]+ )
        (?: [eE] (?P<exponent>[-+]?[0-9]{{1,2}}) (?![0-9]) )?
    )
    (?: \s? (?P<multiplier> hundred | thousand | million | billion | trillion ) \b )?
"""
_CURRENCY = r"(?:US)?[$€£¥₹]|USD|EUR|GBP|Rs\.?"
_NUMBER = re.compile(
    rf"""
    (?<![\w.]) (?: (?P<sign>[-+\u2212\u2013]) \s? (?:{_CURRENCY})?
                 | (?:{_CURRENCY}) \s? (?P<late_sign>[-+\u2212\u2013])? )? \s?
    {_MAGNITUDE}
    """,
    re.VERBOSE | re.IGNORECASE,
)
_MULTIPLIERS = {
    "hundred": 10**2,
    "thousand": 10**3,
    "million": 10**6,
    "billion": 10**9,
    "trillion": 10**12,
}
_NEGATIVE = "-\u2212\u2013"
_DRESSING = (("{,}", ","), ("\\,", ""), ("\\$", "$"), ("\\%", "%"), ("\\!", ""))
_BOXED = re.compile(r"\\boxed\{([^{}]*)\}")
_UNIT_POWER = re.compile(
    r"(?<![A-Za-z])(?:[kcm]?m|ft|in|yd|mi|inches|feet|meters) ?\^?[23](?![0-9])"
)
_OPERATOR_OR_DIGIT = re.compile(r"^\s*[\^*²³×÷+<>!]|[0-9]")


def final_answer(text: str) -> str | None:
    """What follows the last ``####``, stripped; None when there is none."""
    found = [match.strip() for match in _FINAL.findall(text)]
    return next((answer for answer in reversed(found) if answer), None)


def parse_number(text: str) -> Fraction | None:
    """``text`` as one exact number; None when it is not one, or longer than 100 digits."""
    cleaned = _undressed(text)
    match = _NUMBER.match(cleaned)
    if match is None:
        return None
    unit = _UNIT_POWER.sub("", cleaned[match.end() :])
    if _OPERATOR_OR_DIGIT.search(unit):
        return None
    return _value(match)


def last_number(text: str) -> Fraction | None:
    """The last number that occurs anywhere in ``text``; None when there is none."""
    last = None
    for match in _NUMBER.finditer(text):
        last = match
    return None if last is None else _value(last)


def _undressed(text: str) -> str:
    for old, new in _DRESSING:
        text = text.replace(old, new)
    text = _BOXED.sub(r"\1", text).rsplit("=", 1)[-1].strip(" \t\r*_`\"'")
    # Inline LaTeX, "$18$"; a lone "$" in front is a currency.
    return text[1:-1] if len(text) > 1 and text[0] == text[-1] == "$" else text


def _value(match: re.Match[str]) -> Fraction | None:
    if sum(character.isdigit() for character in match.group()) > _MAX_DIGITS:
        return None
    if match["numerator"]:
        denominator = int(match["denominator"])
        if denominator == 0:
            return None
        magnitude = int(match["mixed"] or 0) + Fraction(int(match["numerator"]), denominator)
    else:
        digits = re.sub(r"[^0-9.]", "", match["decimal"]).removesuffix(".")
        magnitude = Fraction(digits) * Fraction(10) ** int(match["exponent"] or 0)
    magnitude *= _MULTIPLIERS[match["multiplier"].lower()] if match["multiplier"] else 1
    negative = (match["sign"] or match["late_sign"] or "+") in _NEGATIVE
    return -magnitude if negative else magnitude
