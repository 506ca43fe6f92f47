"""The documentation says what is there: links resolve, commands parse, references are current."""

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from axisrl.cli.main import main

ROOT = Path(__file__).parents[1]
FOLDERS = (".", "*", "docs", "docs/*", "plugins/*")
PAGES = sorted({page for folder in FOLDERS for page in ROOT.glob(f"{folder}/*.md")})
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
NAMES = [str(path.relative_to(ROOT)) for path in PAGES]


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text())


def shell_lines(page: Path) -> Iterator[str]:
    for language, block in FENCE.findall(page.read_text()):
        if language in ("bash", "sh", "console"):
            joined = block.replace("\\\n", " ")
            yield from (line.strip().removeprefix("$ ") for line in joined.splitlines())


def commands(page: Path, program: str) -> list[str]:
    """Lines of shell blocks that call ``program``; output and comments are other lines."""
    return [line for line in shell_lines(page) if line.split()[:1] == [program]]


def slug(heading: str) -> str:
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {slug(re.sub(r"[`*]", "", heading)) for heading in headings}


def check_command(line: str) -> None:
    """Raises when the command or one of its options does not exist."""
    words = [word for word in shlex.split(line, comments=True) if word not in ("|", "&&")][1:]
    command: click.Command = main
    context = click.Context(main, info_name="axisrl")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        found = command.get_command(context, words[0])
        assert found is not None, f"{line!r}: {command.name} has no command {words[0]!r}"
        command, words = found, words[1:]
    known = {option for parameter in command.params for option in parameter.opts}
    known |= {option for parameter in command.params for option in parameter.secondary_opts}
    for word in words:
        option = word.partition("=")[0]
        if option.startswith("--") and "." not in option and option != "--help":
            assert option in known, f"{line!r}: no option {option}"


def test_there_are_pages_and_they_hold_commands():
    assert ROOT / "README.md" in PAGES
    assert ROOT / "docs/index.md" in PAGES
    assert sum(len(commands(page, "axisrl")) for page in PAGES) > 10


@pytest.mark.parametrize("name", NAMES)
def test_every_relative_link_resolves(name):
    page = ROOT / name
    broken = []
    for target in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        heading = not anchor or anchor in anchors(file) if file.suffix == ".md" else True
        if not file.exists() or not heading:
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("name", NAMES)
def test_every_axisrl_command_exists_with_its_options(name):
    for line in commands(ROOT / name, "axisrl"):
        check_command(line)


@pytest.mark.parametrize("name", NAMES)
def test_every_make_target_exists(name):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    for line in commands(ROOT / name, "make"):
        used = [word for word in shlex.split(line, comments=True)[1:] if "=" not in word]
        assert set(used) <= targets, line


@pytest.mark.parametrize("name", NAMES)
def test_every_script_that_a_page_runs_exists(name):
    for line in commands(ROOT / name, "python"):
        script = shlex.split(line)[1]
        assert (ROOT / script).is_file(), line


def test_a_command_that_does_not_exist_is_noticed():
    for line in ("axisrl trian gsm8k/grpo", "axisrl run gsm8k/grpo-cpu --smoky"):
        with pytest.raises(AssertionError):
            check_command(line)


def test_the_reference_pages_are_what_the_code_says():
    # In a process of its own: click keeps what the first call of a command made of its options.
    check = [sys.executable, str(ROOT / "docs/generate.py"), "--check"]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", ""), "run: make docs"


def test_every_environment_variable_is_documented():
    page = (ROOT / "docs/reference/environment.md").read_text()
    sources = [*ROOT.glob("axisrl-core/src/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")]
    used = {
        name for path in sources for name in re.findall(r"\bAXISRL_[A-Z_]+\b", path.read_text())
    }
    constants = {"AXISRL_API"}
    assert used - constants - set(re.findall(r"AXISRL_[A-Z_]+", page)) == set()


def test_the_walkthrough_names_functions_that_are_in_the_files_it_links():
    page = ROOT / "docs/walkthrough.md"
    pairs = re.findall(r"\[`([\w.]+)`\]\((\.\./[^)#]+\.py)\)", page.read_text())
    assert len(pairs) >= 12
    for name, path in pairs:
        source = (page.parent / path).read_text()
        for part in name.split("."):
            assert re.search(rf"\b(def|class) {part}\b|^{part}\b", source, re.MULTILINE), (
                name,
                path,
            )
