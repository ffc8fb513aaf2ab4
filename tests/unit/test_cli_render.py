"""What guests chose is shown, never obeyed: the escaping that all text views share."""

from __future__ import annotations

import pytest

from mulligan.cli import render


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("plain größe 漢", "plain größe 漢"),
        ("two\nlines\ttab\r", r"two\nlines\ttab\r"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("bell\x07 c1\x9b", r"bell\x07 c1\x9b"),
        ("right\u202eleft", r"right\u202eleft"),
        (b"not \xff utf-8".decode("utf-8", "surrogateescape"), r"not \xff utf-8"),
        (b"bytes \xfe\n", r"bytes \xfe\n"),
    ],
)
def test_everything_that_does_not_print_is_escaped(raw, shown):
    """Controls, ANSI, newlines, direction marks and bytes that are not UTF-8 reach no terminal."""
    assert render.escape(raw) == shown


def test_a_block_keeps_its_lines_and_nothing_else():
    """Output of several lines keeps newlines and tabs; an escape sequence in it is still shown, not obeyed."""
    assert render.block(b"a\tb\n\x1b[2Jc\r\n") == "a\tb\n\\x1b[2Jc\\r\n"


def test_a_table_away_from_a_terminal_is_aligned_and_escaped(capsys):
    """In a pipe a table is plain aligned columns of full width, a name with a newline on one line."""
    render.table(("ACTION", "WHAT"), [("a1", "x\ny"), ("a10", "[red]" + "z" * 300)])
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["ACTION  WHAT", r"a1      x\ny", "a10     [red]" + "z" * 300]


def test_clipping_marks_what_was_cut():
    """A text that was cut ends in an ellipsis and has the width asked for."""
    assert render.clip("abcdef", 4) == "abc…"
    assert render.clip("abcd", 4) == "abcd"


@pytest.mark.parametrize(("count", "said"), [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 2**30, "5.0 GiB")])
def test_sizes_are_in_binary_units(count, said):
    """Sizes are told in the unit that fits."""
    assert render.size(count) == said
