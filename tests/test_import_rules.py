"""Who may import what: plugins see the core and never each other; light modules stay light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CORE = ROOT / "axisrl-core/src"
PLUGINS = sorted(ROOT.glob("plugins/axisrl-plugin-*"))
LIGHT = ("axisrl.plugins", "axisrl.protocols", "axisrl.types", "axisrl.trace", "axisrl.errors")
HEAVY = ("torch", "ray", "transformers")
TORCH_PAGES = ("axisrl/ops/", "axisrl/testing/")
"""Pure torch by purpose, and imported only by what needs torch itself."""
TARGETS = ("axisrl/builtin/ray_handles.py", "axisrl/builtin/sft_loss.py")
"""A component's own module, imported when it is built; its descriptor names what it needs."""


def imports(body: list[ast.stmt], *, nested: bool) -> Iterator[str]:
    """Modules imported by statements; with ``nested`` also inside functions and type checking."""
    for node in body:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
        elif nested or not runs_later(node):
            for field in ("body", "orelse", "finalbody", "handlers"):
                yield from imports(getattr(node, field, []), nested=nested)


def runs_later(node: ast.stmt) -> bool:
    """Whether importing the module leaves the statement's body out."""
    if isinstance(node, ast.If):
        return "TYPE_CHECKING" in ast.dump(node.test)
    return isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


def imported_by(path: Path, *, nested: bool = False) -> set[str]:
    return set(imports(ast.parse(path.read_text()).body, nested=nested))


ENVIRONMENT = ("axisrl/cli/", "axisrl/runtime/actors.py", "axisrl/ops/broadcast/group.py")
"""Who reads environment variables: the command line, and every process of a run once, to hand them
to components that look up the secret which an option names. Everyone else takes values. A group
sets one for a moment: torch takes from nowhere else what a failure of NCCL does."""


def reads_environment(path: Path) -> bool:
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("environ", "getenv", "putenv")
        and isinstance(node.value, ast.Name)
        and node.value.id == "os"
        for node in ast.walk(ast.parse(path.read_text()))
    )


def names_from_os(path: Path) -> set[str]:
    return {
        alias.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module == "os"
        for alias in node.names
    }


def top(module: str) -> str:
    return module.partition(".")[0]


def python_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_imports_no_other_plugin(plugin):
    own = {path.name for path in (plugin / "src").iterdir()}
    others = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in python_files(plugin / "src")
        for module in imported_by(path, nested=True)
        if module.startswith("axisrl_") and top(module) not in own
    }
    assert others == set()


@pytest.mark.parametrize("plugin", PLUGINS, ids=lambda path: path.name)
def test_a_plugin_module_imports_the_descriptors_and_nothing_else(plugin):
    (module,) = (plugin / "src").glob("*/plugin.py")
    allowed = {"axisrl", "__future__", "collections", "typing"}
    assert {top(name) for name in imported_by(module)} <= allowed
    named = imported_by(module, nested=True)
    # A hook may look at its own package when it is called.
    own = {path.name for path in (plugin / "src").iterdir()}
    assert {top(name) for name in named} <= allowed | own | {"pathlib"}
    ours = {name for name in named if top(name) == "axisrl"}
    # A hook's argument may be named for type checkers, which loads nothing.
    assert ours - {"axisrl.config.schema"} == {"axisrl.plugins"}
    assert "axisrl.config.schema" not in imported_by(module)


def test_the_core_imports_no_plugin():
    found = {
        f"{path.relative_to(CORE)}: {module}"
        for path in python_files(CORE)
        for module in imported_by(path, nested=True)
        if module.startswith("axisrl_")
    }
    assert found == set()


def test_the_core_imports_neither_torch_nor_ray_when_it_is_imported():
    found = {
        f"{relative}: {module}"
        for path in python_files(CORE)
        if not (relative := path.relative_to(CORE).as_posix()).startswith((*TORCH_PAGES, *TARGETS))
        for module in imported_by(path)
        if top(module) in HEAVY or module.startswith("axisrl.ops")
    }
    assert found == set()


@pytest.mark.parametrize("root", [CORE, *(p / "src" for p in PLUGINS)], ids=lambda p: p.parts[-2])
def test_only_the_command_line_and_the_actors_read_the_environment(root):
    found = {
        relative
        for path in python_files(root)
        if not (relative := path.relative_to(root).as_posix()).startswith(ENVIRONMENT)
        if reads_environment(path) or names_from_os(path) & {"environ", "getenv"}
    }
    assert found == set()


def test_the_actors_read_the_environment_once():
    text = (CORE / "axisrl/runtime/actors.py").read_text()
    assert text.count("os.environ") == 1 and "os.getenv" not in text


def test_light_modules_load_neither_torch_nor_ray_nor_click():
    names = [
        *LIGHT,
        *(f"axisrl.config.{path.stem}" for path in (CORE / "axisrl/config").glob("*.py")),
    ]
    code = f"""
import importlib, sys
for name in {names!r}:
    importlib.import_module(name.removesuffix(".__init__"))
print(sorted(set(sys.modules) & {{"torch", "ray", "click", "transformers"}}))
"""
    assert run(code) == "[]"


def test_a_plugin_module_loads_neither_numpy_nor_pydantic():
    modules = [path.parent.name + ".plugin" for p in PLUGINS for path in p.glob("src/*/plugin.py")]
    code = f"""
import importlib, sys
for name in {modules!r}:
    importlib.import_module(name)
print(sorted(set(sys.modules) & {{"numpy", "pydantic", "torch", "ray", "click", "yaml"}}))
"""
    assert run(code) == "[]"


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
