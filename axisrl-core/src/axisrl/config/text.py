"""YAML in and out, with the YAML 1.2 reading of plain words and numbers.

``1e-6`` is a number, ``off`` and ``no`` are words, ``010`` is ten and a key given twice is an
error. It does not know the schema, and nothing here runs code or builds objects from tags.
"""

from __future__ import annotations

import math
import re
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from axisrl.errors import ConfigError, UsageError

_PLAIN = (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+", "-+0123456789"),
    (
        "float",
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
        r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
    ("null", r"~|null|Null|NULL|", "~nN\0"),
)


def _resolvers() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    table: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for name, pattern, first in _PLAIN:
        rule = (f"tag:yaml.org,2002:{name}", re.compile(rf"^(?:{pattern})$"))
        for character in first:
            table.setdefault("" if character == "\0" else character, []).append(rule)
    return table


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = _resolvers()

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: set[str] = set()
        for key_node, _ in node.value:
            key = key_node.value
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            if key_node.tag != "tag:yaml.org,2002:str":
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is not a string; quote it",
                    problem_mark=key_node.start_mark,
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key {key!r} is given twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep=True)

    def mapping_now(self, node: yaml.MappingNode) -> dict[Hashable, Any]:
        """PyYAML fills mappings and lists later, which lets one contain itself; this refuses."""
        return self.construct_mapping(node)

    def sequence_now(self, node: yaml.SequenceNode) -> list[Any]:
        """The same for a list."""
        return self.construct_sequence(node, deep=True)


def _int(loader: _Loader, node: yaml.ScalarNode) -> int:
    text = str(loader.construct_scalar(node))
    return int(text, 0) if text[:2] in ("0x", "0o") else int(text)


def _float(loader: _Loader, node: yaml.ScalarNode) -> float:
    text = str(loader.construct_scalar(node)).lower()
    return float(text.replace(".inf", "inf").replace(".nan", "nan"))


_Loader.add_constructor("tag:yaml.org,2002:int", _int)
_Loader.add_constructor("tag:yaml.org,2002:float", _float)
_Loader.add_constructor("tag:yaml.org,2002:map", _Loader.mapping_now)
_Loader.add_constructor("tag:yaml.org,2002:seq", _Loader.sequence_now)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = _resolvers()

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _text(dumper: _Dumper, data: str) -> yaml.ScalarNode:
    style = None if data.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _text)


def parse(text: str, where: str) -> Any:
    """The value a YAML text stands for. Raises ``ConfigError`` with ``where`` and the line."""
    try:
        return yaml.load(text, Loader=_Loader)
    except (yaml.MarkedYAMLError, yaml.reader.ReaderError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f" line {mark.line + 1}" if mark is not None else ""
        problem = getattr(error, "problem", None) or str(error).splitlines()[0]
        raise ConfigError(
            f"{where}{line} is not valid YAML: {problem}",
            fix="correct that line; a text with ': ' or '#' in it needs quotes",
        ) from error


def read_tree(path: Path, where: str = "") -> dict[str, Any]:
    """The mapping in a YAML file (an empty file is an empty mapping)."""
    where = where or str(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise UsageError(f"cannot read {where}: {reason}", fix="check the path") from error
    tree = parse(text, where)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise ConfigError(
            f"{where} holds {type(tree).__name__}, not keys and values",
            fix="start it with `key: value` lines",
        )
    return tree


def dump(value: Any) -> str:
    """One line of YAML that :func:`parse` reads back as the same value."""
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else (".inf" if value > 0 else "-.inf")
    text = yaml.dump(
        value,
        Dumper=_Dumper,
        default_flow_style=True,
        width=math.inf,
        sort_keys=False,
        allow_unicode=True,
    )
    return text.removesuffix("\n").removesuffix("\n...")
