"""SGLang's server arguments, read off the installed package's source without importing it.

The import takes many seconds and a CUDA runtime; the source of ``ServerArgs`` says which arguments
there are and of which type. What only SGLang can judge (combinations, choices) it says itself when
it starts.
"""

from __future__ import annotations

import ast
import difflib
import importlib.util
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from axisrl.errors import ConfigError, EnvironmentProblem
from axisrl_sglang.config import OWNED
from axisrl_sglang.versions import outside

_SIMPLE: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "None": (type(None),),
}


def package_folder() -> Path:
    """Where SGLang is installed. Raises ``EnvironmentProblem`` when it is not."""
    spec = importlib.util.find_spec("sglang")
    if spec is None or not spec.submodule_search_locations:
        raise EnvironmentProblem(
            "SGLang is not installed", fix="pip install 'axisrl-plugin-sglang[sglang]'"
        )
    return Path(next(iter(spec.submodule_search_locations)))


def classes_of(source: str) -> dict[str, dict[str, ast.AnnAssign]]:
    """Class -> its annotated fields, of every class in a module's source."""
    return {
        node.name: {
            line.target.id: line
            for line in node.body
            if isinstance(line, ast.AnnAssign) and isinstance(line.target, ast.Name)
        }
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.ClassDef)
    }


def server_arguments(folder: Path) -> dict[str, ast.AnnAssign]:
    """Every server argument of the SGLang in ``folder``: the fields of ``ServerArgs``, and of the
    classes that newer releases put it together from.

    Raises ``EnvironmentProblem`` when what the engine itself sets is not among them.
    """
    srt, known = folder / "srt", dict[str, ast.AnnAssign]()
    parts = sorted((srt / "arg_groups" / "fields").glob("*.py"))
    for path in filter(Path.exists, [srt / "server_args.py", *parts]):
        for name, fields in classes_of(path.read_text(encoding="utf-8")).items():
            known |= fields if name == "ServerArgs" or path in parts else {}
    if missing := sorted(OWNED.keys() - known.keys()):
        raise EnvironmentProblem(
            f"this SGLang has no server argument {', '.join(missing)}; {outside()}".rstrip("; "),
            fix="install one that the plugin supports: pip install 'axisrl-plugin-sglang[sglang]'",
        )
    return known


def check_arguments(given: Mapping[str, Any], known: Mapping[str, ast.AnnAssign]) -> None:
    """Raise ``ConfigError`` for the first that is wrong."""
    for name, message, fix in wrong_arguments(given, known):
        raise ConfigError(f"engine.sglang.{name}: {message}", fix=fix)


def wrong_arguments(
    given: Mapping[str, Any], known: Mapping[str, ast.AnnAssign]
) -> Iterator[tuple[str, str, str]]:
    """Names that are not there, with the nearest one, and of values that are not of the argument's
    type: each with what is wrong and the fix."""
    for name, value in given.items():
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            message = f"the SGLang installed has no such argument{hint}"
            yield name, message, "python -m sglang.launch_server --help lists them"
            continue
        types = simple_types(known[name].annotation)
        if types is not None and not _is_one_of(value, types):
            message = f"{value!r} is not of type {' or '.join(types)}"
            yield name, message, "see the argument in python -m sglang.launch_server --help"


def simple_types(annotation: ast.expr) -> tuple[str, ...] | None:
    """Names of the scalar types an annotation allows; None where it allows anything else too."""
    if isinstance(annotation, ast.Subscript):
        outer = ast.unparse(annotation.value).rpartition(".")[2]
        inner = annotation.slice
        parts = inner.elts if isinstance(inner, ast.Tuple) else [inner]
        if outer in ("A", "Annotated"):
            return simple_types(parts[0])
        if outer == "Optional":
            return _joined([*parts, ast.Constant(None)])
        return _joined(parts) if outer == "Union" else None
    if isinstance(annotation, ast.BinOp):
        return _joined([annotation.left, annotation.right])
    name = ast.unparse(annotation)
    return (name,) if name in _SIMPLE else None


def _joined(parts: list[ast.expr]) -> tuple[str, ...] | None:
    found: list[str] = []
    for part in parts:
        types = simple_types(part)
        if types is None:
            return None
        found.extend(types)
    return tuple(found)


def _is_one_of(value: Any, types: tuple[str, ...]) -> bool:
    if isinstance(value, bool):
        return "bool" in types
    return any(isinstance(value, _SIMPLE[name]) for name in types)
