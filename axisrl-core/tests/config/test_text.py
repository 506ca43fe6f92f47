from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axisrl.config.text import dump, parse, read_tree
from axisrl.errors import ConfigError, UsageError

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-6", 1e-6),
        ("1E5", 1e5),
        (".5", 0.5),
        ("010", 10),
        ("0x10", 16),
        ("0o17", 15),
        ("off", "off"),
        ("no", "no"),
        ("1:30", "1:30"),
        ("2024-01-01", "2024-01-01"),
        ("True", True),
        ("", None),
        ("~", None),
        ("[1, a]", [1, "a"]),
    ],
)
def test_words_and_numbers_are_read_as_yaml_1_2(text, value):
    found = parse(text, "here")
    assert found == value
    assert type(found) is type(value)


@given(VALUES)
def test_what_is_dumped_on_one_line_reads_back_equal(value):
    text = dump(value)
    assert "\n" not in text
    assert parse(text, "here") == value


def test_a_key_given_twice_is_an_error_with_its_line():
    with pytest.raises(ConfigError, match=r"my\.yaml line 2 .*'a' is given twice"):
        parse("a: 1\na: 2", "my.yaml")


def test_a_key_that_is_no_string_is_an_error():
    with pytest.raises(ConfigError, match="'1' is not a string"):
        parse("1: x", "my.yaml")


@pytest.mark.parametrize("text", ["a: b: c", "!!python/object:os.system x", "\x00", "{a"])
def test_text_that_is_no_plain_yaml_is_a_config_error(text):
    with pytest.raises(ConfigError, match="not valid YAML"):
        parse(text, "my.yaml")


@pytest.mark.parametrize("text", ["&a [*a]", "&a {b: *a}"])
def test_a_value_that_contains_itself_is_refused(text):
    with pytest.raises(ConfigError, match="recursive"):
        parse(text, "my.yaml")


def test_merge_keys_still_work():
    assert parse("base: &b {x: 1}\nit: {<<: *b, y: 2}", "f")["it"] == {"x": 1, "y": 2}


def test_an_empty_file_is_an_empty_tree(tmp_path):
    (tmp_path / "a.yaml").write_text("# nothing\n")
    assert read_tree(tmp_path / "a.yaml") == {}


def test_a_file_with_a_list_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("- 1\n")
    with pytest.raises(ConfigError, match="not keys and values"):
        read_tree(tmp_path / "a.yaml")


def test_a_missing_file_is_a_usage_error(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read_tree(tmp_path / "a.yaml")


def test_a_file_that_is_not_utf8_is_a_usage_error(tmp_path):
    (tmp_path / "a.yaml").write_bytes(b"a: \xff")
    with pytest.raises(UsageError, match="UTF-8"):
        read_tree(tmp_path / "a.yaml")
