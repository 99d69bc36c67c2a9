"""`python -m deploy.man`: the man page, from the parsers of the commands, to standard output.

Like the help it is made of what the parsers know; it names no width and no version of argparse, so that each Python
writes the same page.
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.cli.main import whole_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

_SUMMARY: Final = "keep Cloud TPU VMs training"
_ABOUT: Final = (
    "A daemon (tpuwatch run) reads what libtpu and training jobs log, asks the Cloud TPU API, the runtime and the host "
    "how the node is, says what is wrong and what to do, and serves it to Prometheus. The other commands show what it "
    "knows, check a machine, restart nodes, and decide the environment of the next launch.",
)
_EXIT: Final = (
    ("0", "done"),
    ("1", "done, and something is wrong, where a command judges"),
    ("2", "wrong use or configuration"),
    ("3", "could not find out"),
    ("130", "ended by Ctrl-C"),
)
_ENVIRONMENT: Final = (
    ("TPUWATCH_CONFIG", "The configuration, where --config does not name one."),
    ("NO_COLOR", "Where it is set, nothing is in colour."),
)
_FILES: Final = (
    ("/etc/tpuwatch/config.toml", "The configuration; `tpuwatch config show` prints what holds."),
    ("/var/lib/tpuwatch", "The state: events, launches, restarts, plans."),
)


def page() -> str:
    """The page, in the macros of man(7)."""
    parser = whole_parser()
    lines = [f'.TH TPUWATCH 1 "" "tpuwatch {__version__}" "User Commands"', ".nh", ".ad l"]
    lines += [".SH NAME", rf"tpuwatch \- {_SUMMARY}", ".SH SYNOPSIS", *_synopsis(parser)]
    lines += [".SH DESCRIPTION", *(line for paragraph in _ABOUT for line in (".PP", _text(paragraph)))]
    lines += [".SH OPTIONS", *_arguments(parser), ".SH COMMANDS"]
    for name, below in _commands(parser):
        lines += _command(name, below)
    lines += [".SH EXIT STATUS", *_listed(_EXIT), ".PP", _text("`tpuwatch exec` ends as its command does.")]
    lines += [".SH ENVIRONMENT", *_listed(_ENVIRONMENT), ".SH FILES", *_listed(_FILES)]
    return "\n".join(lines) + "\n"


def _command(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    """A command, and those below it."""
    yield f'.SS "{_escaped(parser.prog if " " in name else name)}"'
    yield from _synopsis(parser)
    if parser.description:
        yield from (".PP", _text(parser.description))
    yield from _arguments(parser)
    if parser.epilog:
        yield from (".PP", _text(_sentence(parser.epilog)))
    for below, its in _commands(parser):
        yield from _command(f"{name} {below}", its)


def _synopsis(parser: argparse.ArgumentParser) -> Iterator[str]:
    words = [rf"\fB{_escaped(parser.prog)}\fR"]
    if any(action.option_strings for action in _shown(parser)):
        words.append(r"[\fIOPTION\fR ...]")
    for action in _shown(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001 (argparse has no other way to them)
            words.append(r"\fI" + _escaped(str(action.metavar)) + r"\fR ...")
        elif action.option_strings and action.required:
            words.append(_option(action))
        elif not action.option_strings:
            words.append(_value(action))
    yield from (".PP", " ".join(words))


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Each argument, those without a name of their own first; --help once, as the program's own."""
    for action in sorted(_shown(parser), key=lambda action: bool(action.option_strings)):
        own = not isinstance(action, argparse._HelpAction) or " " not in parser.prog  # noqa: SLF001
        if own and not isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from (".TP", _option(action) if action.option_strings else _value(action), _text(_help(action)))


def _option(action: argparse.Action) -> str:
    names = ", ".join(rf"\fB{_escaped(name)}\fR" for name in action.option_strings)
    return f"{names} {_value(action)}" if action.nargs != 0 else names


def _value(action: argparse.Action) -> str:
    """What follows an option, or stands by itself, with what may be left out or repeated."""
    names = action.metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())
    shown = " ".join(rf"\fI{_escaped(name)}\fR" for name in ([names] if isinstance(names, str) else names))
    if action.nargs in ("?", argparse.OPTIONAL):
        return f"[{shown}]"
    if action.nargs in ("*", argparse.ZERO_OR_MORE, argparse.REMAINDER):
        return f"[{shown} ...]"
    return f"{shown} [{shown} ...]" if action.nargs in ("+", argparse.ONE_OR_MORE) else shown


def _shown(parser: argparse.ArgumentParser) -> list[argparse.Action]:
    return [action for action in parser._actions if action.help != argparse.SUPPRESS]  # noqa: SLF001


def _commands(parser: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in _shown(parser):
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            yield from action.choices.items()


def _help(action: argparse.Action) -> str:
    if isinstance(action, argparse._HelpAction):  # noqa: SLF001 (its words differ between versions of Python)
        return "Print the help."
    if isinstance(action, argparse._VersionAction):  # noqa: SLF001
        return "Print the version."
    values: dict[str, Any] = {**vars(action), "prog": "tpuwatch"}
    return _sentence((action.help or "") % values)


def _sentence(text: str) -> str:
    """With a capital, and with a full stop at its end."""
    return f"{text[:1].upper()}{text[1:]}".rstrip(".") + "."


def _listed(entries: tuple[tuple[str, str], ...]) -> Iterator[str]:
    for name, text in entries:
        yield from (".TP", rf"\fB{_escaped(name)}\fR", _text(_sentence(text)))


def _text(text: str) -> str:
    """Words, what is between backticks in bold."""
    parts = re.split(r"`([^`]+)`", " ".join(text.split()))
    found = "".join(rf"\fB{_escaped(part)}\fR" if number % 2 else _escaped(part) for number, part in enumerate(parts))
    return rf"\&{found}" if found[:1] in (".", "'") else found


def _escaped(text: str) -> str:
    """Each character as it is, and nothing a request; hyphens that can be copied."""
    escaped = text.replace("\\", r"\e").replace("-", r"\-").replace("~", r"\(ti").replace("^", r"\(ha")
    return "".join(char if char.isascii() else rf"\[u{ord(char):04X}]" for char in escaped).replace('"', r"\(dq")


if __name__ == "__main__":
    sys.stdout.write(page())
