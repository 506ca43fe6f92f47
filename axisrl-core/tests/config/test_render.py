from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from axisrl.config.render import render, render_defaults
from axisrl.config.schema import RunConfig, SamplingConfig, ValueConfig
from axisrl.config.text import parse
from axisrl.config.validate import validate

LEAVES = st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text(), max_size=3)
ITEMS = LEAVES | st.lists(st.dictionaries(st.text(), LEAVES, max_size=2), max_size=2)
TREES = st.dictionaries(
    st.text(), st.recursive(ITEMS, lambda i: st.dictionaries(st.text(), i, max_size=3)), max_size=4
)


@given(TREES)
def test_what_is_rendered_reads_back_equal(tree):
    assert (parse(render(tree, dict.fromkeys(tree, "somewhere")), "f") or {}) == tree


def test_each_value_says_where_it_was_set():
    text = render(
        {"env": {"use": "a/b", "size": 3}, "loggers": [{"use": "c"}, {"use": "d"}], "stop": [1, 2]},
        {"env.use": "recipe x", "env.size": "command line", "loggers": "--logger"},
    )
    assert text == (
        "env:\n"
        "  use: a/b  # recipe x\n"
        "  size: 3  # command line\n"
        "loggers:  # --logger\n"
        "- {use: c}\n"
        "- {use: d}\n"
        "stop: [1, 2]\n"
    )


def test_a_text_with_line_breaks_stays_on_its_line():
    assert render({"a": {"b": "x\ny: 1 # z"}}, {}) == 'a:\n  b: "x\\ny: 1 # z"\n'


def test_defaults_of_a_class_are_its_defaults():
    text = render_defaults(SamplingConfig)
    assert validate(SamplingConfig, parse(text, "f")) == SamplingConfig()
    assert "# Most tokens of one model call.\nmax_tokens: 256  # int\n" in text


def test_required_keys_are_comments_in_the_defaults():
    text = render_defaults(RunConfig)
    assert "# model:  # ModelConfig\n" in text
    assert "model" not in parse(text, "f")
    assert parse(text, "f")["eval"] is None
    assert "# loss:  # Use, required\n" in render_defaults(ValueConfig)
