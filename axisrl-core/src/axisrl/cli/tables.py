"""Tables and text for the terminal. Cells are plain text: what a plugin calls itself is never read
as markup, and its control characters are dropped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

_PIPE_WIDTH = 200


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, indent: int = 0) -> None:
    """Print aligned columns to stdout, wrapped at the terminal's width; a pipe gets wide lines."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _PIPE_WIDTH
    with console.capture() as capture:
        console.print(table, width=console.width - indent)
    for line in capture.get().splitlines():
        click.echo(" " * indent + line.rstrip())


def printable(text: str) -> str:
    """``text`` without characters that drive a terminal."""
    return "".join(c for c in text if c.isprintable() or c == "\n")
