from __future__ import annotations

from axisrl.cli.tables import print_table, printable


def test_columns_are_aligned_and_lines_have_no_trailing_spaces(capsys):
    print_table(("name", "state"), [("a", "found"), ("longer", "")])
    assert capsys.readouterr().out == "name    state\na       found\nlonger\n"


def test_an_indented_table_starts_further_right(capsys):
    print_table(("name",), [("a",)], indent=2)
    assert capsys.readouterr().out == "  name\n  a\n"


def test_cells_are_plain_text_and_not_markup(capsys):
    print_table(("name",), [("[bold]x[/bold]",)])
    assert "[bold]x[/bold]" in capsys.readouterr().out


def test_a_pipe_gets_wide_lines(capsys):
    print_table(("note",), [("word " * 30,)])
    assert len(capsys.readouterr().out.splitlines()) == 2


def test_control_characters_are_dropped():
    assert printable("a\x1b[2Jb\rc\nd") == "a[2Jbc\nd"
