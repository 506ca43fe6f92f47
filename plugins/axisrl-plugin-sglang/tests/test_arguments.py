"""Tests of axisrl_sglang.arguments."""

import ast

import pytest

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl_sglang.arguments import (
    check_arguments,
    classes_of,
    package_folder,
    server_arguments,
    simple_types,
)
from axisrl_sglang.config import OWNED
from axisrl_sglang.versions import SUPPORTED

SOURCE = """
class Other:
    a: int = 1

class ServerArgs:
    tp_size: A[int, "Tensor parallel size."] = 1
    attention_backend: A[Optional[str], Arg(choices=CHOICES)] = None
    mem_fraction_static: Optional[float] = None
    disable: bool = False
    paths: A[Optional[List[str]], "x"] = None
    either: "int | str" = 0
"""
KNOWN = classes_of(SOURCE)["ServerArgs"]


@pytest.mark.parametrize(
    "given",
    [
        {"tp_size": 2, "attention_backend": None},
        {"mem_fraction_static": 1, "disable": True},
        {"paths": {"anything": 1}},
    ],
)
def test_arguments_of_their_type_pass(given):
    check_arguments(given, KNOWN)


def test_an_unknown_argument_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigError, match=r"engine.sglang.tp_sise.*did you mean tp_size\?"):
        check_arguments({"tp_sise": 2}, KNOWN)


@pytest.mark.parametrize(
    ("given", "types"),
    [
        ({"tp_size": "two"}, "int"),
        ({"tp_size": True}, "int"),
        ({"disable": 1}, "bool"),
        ({"attention_backend": 3}, "str or None"),
        ({"mem_fraction_static": "half"}, "float or None"),
    ],
)
def test_a_value_of_another_type_is_refused_by_name(given, types):
    (name,) = given
    with pytest.raises(ConfigError, match=f"engine.sglang.{name}.*not of type {types}\n"):
        check_arguments(given, KNOWN)


@pytest.mark.parametrize(
    ("annotation", "types"),
    [
        ("int", ("int",)),
        ("int | None", ("int", "None")),
        ("Union[int, str]", ("int", "str")),
        ("Annotated[Optional[bool], 1]", ("bool", "None")),
        ("List[int]", None),
        ("Optional[Path]", None),
    ],
)
def test_scalar_types_are_read_off_an_annotation(annotation, types):
    assert simple_types(ast.parse(annotation, mode="eval").body) == types


@pytest.fixture
def folder(tmp_path):
    """``folder(path, text)`` writes a module of an SGLang; returns where that SGLang is."""

    def written(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        return tmp_path

    return written


def fields(names):
    return "\n".join(f"    {name}: int = 0" for name in names)


def test_arguments_are_also_found_in_the_classes_that_server_args_is_put_together_from(folder):
    owned = sorted(OWNED)
    folder("srt/server_args.py", f"class ServerArgs:\n{fields(owned[:3])}\nclass A:\n    x: int\n")
    folder("srt/arg_groups/fields/a.py", f"class Model(Struct):\n{fields(owned[3:])}")
    there = folder("srt/arg_groups/fields/b.py", "class Spec(Struct):\n    tp_size: int = 1\n")
    assert server_arguments(there).keys() == {*owned, "tp_size"}


def test_an_sglang_without_what_the_engine_sets_is_named_with_the_range(folder, monkeypatch):
    monkeypatch.setattr("importlib.metadata.version", lambda name: "0.9.1")
    there = folder("srt/server_args.py", f"class ServerArgs:\n{fields(sorted(OWNED)[1:])}")
    wanted = f"{sorted(OWNED)[0]}; SGLang 0.9.1 is installed.*supports {SUPPORTED}"
    with pytest.raises(EnvironmentProblem, match=wanted):
        server_arguments(there)


@pytest.mark.usefixtures("fake_sglang")
def test_the_arguments_of_the_installed_package_are_found_without_importing_it():
    assert "mem_fraction_static" in server_arguments(package_folder())


def test_a_machine_without_sglang_is_told_so(monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match="not installed"):
        package_folder()
