from __future__ import annotations

import copy
import inspect
import pickle

import pytest

from axisrl import errors
from axisrl.errors import AxisrlError, PluginMismatch

TREE = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, Exception)]


class Custom(AxisrlError):
    """A subclass whose constructor takes other arguments, as a plugin might write it."""

    exit_code = 7

    def __init__(self, node: str, *, rank: int) -> None:
        super().__init__(f"{node} rank {rank}", fix="restart")
        self.node = node
        self.rank = rank


def test_every_exception_is_in_one_tree():
    assert len(TREE) > 10
    assert all(issubclass(cls, AxisrlError) for cls in TREE)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", TREE)
def test_every_exception_type_survives_pickling_with_its_attributes(cls, protocol):
    error = cls("node 3 differs", fix="install it")
    error.node = "n3"
    twin = pickle.loads(pickle.dumps(error, protocol))
    assert type(twin) is cls
    assert (str(twin), twin.args, vars(twin)) == (str(error), error.args, vars(error))
    assert twin.exit_code == error.exit_code


def test_an_exception_with_other_constructor_arguments_survives_too():
    for twin in (pickle.loads(pickle.dumps(Custom("n", rank=2))), copy.copy(Custom("n", rank=2))):
        assert (twin.node, twin.rank, twin.exit_code) == ("n", 2, 7)
        assert str(twin) == "n rank 2\n  fix: restart"


def test_the_text_is_the_message_and_the_fix_if_there_is_one():
    assert str(PluginMismatch("a differs")) == "a differs"
    assert str(PluginMismatch("a differs", fix="install a")) == "a differs\n  fix: install a"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("RunFailed", 1),
        ("UsageError", 2),
        ("ConfigError", 2),
        ("EnvironmentProblem", 3),
        ("PluginError", 4),
        ("PluginMismatch", 4),
    ],
)
def test_exit_codes_are_the_documented_ones(name, code):
    assert getattr(errors, name).exit_code == code
