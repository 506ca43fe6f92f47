"""Reading numbers the way a person would, without ever evaluating or stalling on text."""

import time
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl_gsm8k.answers import final_answer, last_number, parse_number

READ_AS = [
    ("18", "18"),
    ("1,234", "1234"),
    ("1,234,567", "1234567"),
    ("1 234", "1234"),
    ("1\u202f234", "1234"),
    ("$18.00", "18"),
    ("18.00", "18"),
    ("18%", "18"),
    ("18 %", "18"),
    ("-3.0", "-3"),
    ("- 3", "-3"),
    ("-$3", "-3"),
    ("$-3", "-3"),
    ("\u22123", "-3"),
    ("+3", "3"),
    ("1/2", "1/2"),
    ("-1/2", "-1/2"),
    ("2 1/2", "5/2"),
    ("3 1/2 cups", "7/2"),
    ("0.5", "1/2"),
    (".5", "1/2"),
    ("18.", "18"),
    (" 18 \r", "18"),
    ("007", "7"),
    ("18 dollars", "18"),
    ("18 apples.", "18"),
    ("18 miles per hour", "18"),
    ("$18/hour", "18"),
    ("18 m^2", "18"),
    ("18 cm2", "18"),
    ("50\u00a2", "50"),
    ("18\u20ac", "18"),
    ("USD 18", "18"),
    ("2 million", "2000000"),
    ("1e3", "1000"),
    ("1.5e-3", "3/2000"),
    ("**18**", "18"),
    ("`18`", "18"),
    ("$18$", "18"),
    ("\\$18", "18"),
    ("18\\%", "18"),
    ("\\boxed{18}", "18"),
    ("$\\boxed{1{,}234}$", "1234"),
    ("6 + 12 = 18", "18"),
    ("x = 18", "18"),
]


@pytest.mark.parametrize(("text", "value"), READ_AS)
def test_a_number_is_read_as_a_person_reads_it(text, value):
    assert parse_number(text) == Fraction(value)


NOT_ONE_NUMBER = [
    "",
    " ",
    "eighteen",
    "18 or 20",
    "18-20",
    "18, 20",
    "5 + 3",
    "18^2",
    "18\u00b2",
    "18:30",
    "1/0",
    "5 5/0",
    "1/2/3",
    "12,34",
    "1,2345",
    "18.5.3",
    "--3",
    "0x12",
    "1_000",
    "nan",
    "inf",
    "-Infinity",
    "1e999999999",
    "1e100",
    "9" * 101,
    "__import__('os').system('true')",
    "().__class__",
    "{0.__class__}",
    "\x00",
    "\ud800",
]


@pytest.mark.parametrize("text", NOT_ONE_NUMBER)
def test_what_is_not_exactly_one_number_is_none(text):
    assert parse_number(text) is None


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("so 5.\n#### 18", "18"),
        ("####18", "18"),
        ("#### 5\n#### 18\n", "18"),
        ("#### 18 ####", "18"),
        ("#### 18\n####\n", "18"),
        ("#### 18 dollars\nGood luck! 20", "18 dollars"),
        ("### 18", None),
        ("####", None),
        ("####\n18", None),
        ("18", None),
        ("", None),
    ],
)
def test_the_final_answer_follows_the_last_four_hashes(text, answer):
    assert final_answer(text) == answer


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("48/2 = 24, so 72.", 72),
        ("The answer is 10-3", 3),
        ("It is -3", -3),
        ("She pays $1,234.50.", Fraction("1234.5")),
        ("costs$18", 18),
        ("(5)", 5),
        ("none at all", None),
        ("variable x2", None),
        ("1/0", None),
    ],
)
def test_the_last_number_of_a_text(text, value):
    assert last_number(text) == value


@given(st.integers(-(10**12), 10**12), st.sampled_from(["", "$", "US$"]), st.booleans())
def test_every_integer_is_read_back_however_it_is_written(number, currency, grouped):
    digits = f"{abs(number):,}" if grouped else str(abs(number))
    sign = "-" if number < 0 else ""
    for text in (f"{sign}{currency}{digits}", f"{currency}{sign}{digits}.00", f"{sign}{digits}."):
        assert parse_number(text) == number


@given(st.integers(-999, 999), st.integers(1, 999))
def test_every_fraction_is_read_exactly(numerator, denominator):
    assert parse_number(f"{numerator}/{denominator}") == Fraction(numerator, denominator)


@given(st.text(max_size=200))
def test_no_text_raises(text):
    parse_number(text)
    last_number(text)
    final_answer(f"#### {text}")


@given(st.text(alphabet="0123456789 ,./-+$#e\n=%", max_size=60))
def test_no_text_of_number_characters_raises(text):
    parse_number(text)
    last_number(text)
    final_answer(text)


@pytest.mark.parametrize(
    "piece",
    [
        "9",
        "5 ",
        "1,111",
        " 111",
        "-",
        "- ",
        ".",
        "1/",
        "1e",
        "#",
        "#### ",
        "$",
        "=",
        "\\boxed{",
        "(",
    ],
)
def test_time_is_linear_in_the_length_of_the_text(piece):
    text = piece * (300_000 // len(piece))
    start = time.process_time()
    parse_number(text)
    last_number(text)
    final_answer(text)
    assert time.process_time() - start < 5
