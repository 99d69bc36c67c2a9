from __future__ import annotations

import fcntl
import io
import os
import re
import shlex
import struct
import termios

import pytest

from tpuwatch.terminal.console import Console, Lines, print_text, wants_colour


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_wraps_at_80_columns_with_a_hanging_indent() -> None:
    stream = io.StringIO()
    Console(stream, width=80).line("word " * 40, indent=4, hang=3)
    lines = stream.getvalue().splitlines()
    assert all(len(line) <= 80 for line in lines)
    assert [len(line) - len(line.lstrip()) for line in lines] == [4, 7, 7]


@pytest.mark.parametrize(("columns", "width"), [(0, 80), (20, 40), (50, 50), (120, 120), (200, 200)])
def test_the_width_is_that_of_the_terminal(columns: int, width: int) -> None:
    master, slave = os.openpty()
    with open(master, "rb"), open(slave, "w") as terminal:
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        assert Console(terminal).width == width


def test_a_long_word_stays_whole_so_that_an_address_can_be_copied() -> None:
    stream = io.StringIO()
    Console(stream).line("https://example.org/" + "x" * 100, indent=4)
    assert stream.getvalue() == "    https://example.org/" + "x" * 100 + "\n"


def test_an_empty_line_is_written() -> None:
    stream = io.StringIO()
    Console(stream).line()
    assert stream.getvalue() == "\n"


def test_colour_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    assert wants_colour(Terminal())
    assert not wants_colour(io.StringIO())


@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_no_colour_when_it_is_unwanted(monkeypatch: pytest.MonkeyPatch, name: str, value: str) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(name, value)
    assert not wants_colour(Terminal())


def test_each_line_carries_its_own_colour() -> None:
    stream = io.StringIO()
    Console(stream, colour=True, width=80).line("word " * 20, style="bold red")
    assert [line[:7] for line in stream.getvalue().splitlines()] == ["\x1b[1;31m"] * 2
    assert stream.getvalue().count("\x1b[0m") == 2


def test_a_row_is_written_as_it_is() -> None:
    stream = io.StringIO()
    console = Console(stream, colour=True)
    console.row("a" + " " * 90 + "b  ")
    console.row("c", style="red")
    assert stream.getvalue() == "a" + " " * 90 + "b\n\x1b[31mc\x1b[0m\n"


def test_in_a_pipe_each_line_is_whole() -> None:
    stream = io.StringIO()
    Console(stream).line("word " * 40)
    assert stream.getvalue() == "word " * 39 + "word\n"


@pytest.mark.parametrize("width", [60, 80, 120, 160])
def test_a_line_that_is_cut_ends_within_the_width_with_a_word(width: int) -> None:
    stream = io.StringIO()
    Console(stream, width=width).cut("It needs 20.5 GiB, see /var/log/jobs/train.log; `kill -9 4711`. " * 4)
    (line,) = stream.getvalue().splitlines()
    assert len(line) <= width
    assert re.search(r"(It|needs|see|train\.log|4711`\.?|GiB)…$", line)


def test_a_command_has_a_line_of_its_own_that_is_not_wrapped() -> None:
    stream = io.StringIO()
    command = "gcloud compute tpus tpu-vm describe train-1 --zone=us-central2-b --project=a-project-with-a-long-name"
    text = f"1. Raise `poll_seconds` or set `enabled = false`, then look at it: `{command}`, and end it with `kill 7`."
    print_text(Console(stream, width=80), text, indent=3, hang=3)
    assert stream.getvalue().splitlines() == [
        "   1. Raise `poll_seconds` or set `enabled = false`, then look at it:",
        f"        {command}",
        "      and end it with",
        "        kill 7",
    ]


def test_on_a_screen_a_command_goes_on_as_a_shell_reads_it() -> None:
    command = "gcloud compute tpus tpu-vm ssh train-1 --zone=us-central2-b --command='tpuwatch status --verbose'"
    lines = Lines(50)
    print_text(lines, f"Look: `{command}`")
    assert max(len(text) for _, text in lines.lines) <= 50
    (_, title), *shown = lines.lines
    assert title == "Look:"
    assert len(shown) > 1
    assert shlex.split("\n".join(text for _, text in shown).replace("\\\n", "")) == shlex.split(command)


@pytest.mark.parametrize("write", ["line", "row", "cut"])
def test_no_terminal_obeys_the_text(write: str) -> None:
    stream = io.StringIO()
    getattr(Console(stream, colour=True, width=80), write)("tpuwatch \x1b[2J0.1\u202e\x9b31m is here", style="bold")
    text = stream.getvalue()
    assert text.count("\x1b") == 2  # the style's own
    assert not {"\u202e", "\x9b"} & {*text}
    assert "is here" in text
