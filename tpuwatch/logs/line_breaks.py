"""Undoes hard line breaks: mail, chat, documents and narrow terminals break a message where their width ends."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Final

from tpuwatch.logs.rules.shape import ALIKE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from tpuwatch.logs.parse.match import Match

_WIDTHS: Final = range(40, 161)  # bytes; a text with longer lines was not wrapped, nor one with only shorter ones
_INDENT: Final = b" \t>"  # and marks of quotation, which each line of a wrapped message has
_NEW_LINE: Final = re.compile(
    rb"[-*+|#`~=]|[0-9]{1,3}[.)] |[IWEF][0-9]{4} |\[?[0-9]{4}-[0-9]{2}-[0-9]{2}|File \"|[\[({]{1,3}[\"']"
)
_HEADER: Final = re.compile(rb"(?![IWEF][0-9]{4} ).*?[]:|Z] ")  # of a collector of logs, or a part of it


def unwrapped(text: bytes, *, inside_words: bool = False) -> bytes:
    """The text with its hard line breaks undone; as it is where none is found.

    A line was broken if the next one's first word had no room in it. `inside_words`: if it is as long as the longest,
    as terminals break it, between two words or not. What was joined is followed by empty lines, so that each line
    keeps its number.
    """
    lines = text.split(b"\n")
    width = max(map(len, lines))
    if width not in _WIDTHS:
        return text
    joined, start = lines[:1], 0
    for above, line in pairwise(lines):
        bare = line[_header_length(above, line) :].lstrip(_INDENT)
        word = bare.split(b" ", 1)[0]
        full = len(above) == width if inside_words else len(above.rstrip()) + 1 + len(word) > width
        if word and full and above.strip(_INDENT) and not _NEW_LINE.match(bare):
            joined[start] = joined[start] + bare if inside_words else joined[start].rstrip() + b" " + bare
            joined.append(b"")
        else:
            start = len(joined)
            joined.append(line)
    return b"\n".join(joined)


def _header_length(above: bytes, line: bytes) -> int:
    """The length of the header that both lines begin with, but for digits; 0 if they have none."""
    length = 0
    while part := _HEADER.match(line, length):
        if above[length : part.end()].translate(ALIKE) != part[0].translate(ALIKE):
            break
        length = part.end()
    return length


def over_lines(
    text: bytes, matches: Sequence[Match], matches_in: Callable[[bytes], Iterable[Match]]
) -> tuple[list[Match], list[Match]]:
    """The text's matches, with the details that its hard line breaks hide, and the faults that these hide.

    Faults are looked for in a text that shows none. Where it shows only what a person writes, or a bare code, they are
    looked for in the messages that these stand in. Marks are the text's own.
    """
    found, shown = list(matches), _faults(matches)
    shows_specific = any(map(_is_specific, shown))
    hidden: list[Match] = []
    for inside_words in (False, True):
        if any(map(_is_specific, hidden)):
            break
        joined = unwrapped(text, inside_words=inside_words)
        if joined == text:
            continue
        whole = _faults(matches_in(joined))
        if shows_specific:
            found = [_completed(match, whole) for match in found]
        elif shown:
            places = {_first_line(joined, match.line) for match in shown}
            hidden = [match for match in whole if _is_specific(match) and match.line in places]
        else:
            hidden = whole or hidden
    return found, hidden


def _faults(matches: Iterable[Match]) -> list[Match]:
    return [match for match in matches if match.rule.cause is not None]


def _is_specific(fault: Match) -> bool:
    return not fault.rule.prose and not fault.rule.general


def _first_line(joined: bytes, number: int) -> int:
    """The line that a line was joined to."""
    lines = joined.split(b"\n", number)[:number]
    return max((place for place, line in enumerate(lines, 1) if line), default=number)


def _completed(match: Match, whole: Iterable[Match]) -> Match:
    """The match with the details that the same rule finds in the whole message."""
    for other in whole:
        same = other.rule is match.rule and other.line == match.line and match.details.items() <= other.details.items()
        if same and len(other.details) > len(match.details):
            return replace(match, details=other.details)
    return match
