"""Undoes hard line breaks: mail, chat and documents break a message where their width ends."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tpuwatch.logs.parse.match import Match

_WIDTHS: Final = range(50, 161)  # bytes; a text with longer lines was not wrapped, nor one with only shorter ones
_INDENT: Final = b" \t>"  # and marks of quotation, which each line of a wrapped message has
_NEW_LINE: Final = re.compile(
    rb"[-*+|#`~=]|[0-9]{1,3}[.)] |[IWEF][0-9]{4} |\[?[0-9]{4}-[0-9]{2}-[0-9]{2}|File \"|[\[({]{1,3}[\"']"
)


def unwrapped(text: bytes) -> bytes:
    """The text with its hard line breaks undone; as it is where none is found.

    A line was broken if the next one's first word had no room in it. What was joined is followed by empty lines, so
    that each line keeps its number.
    """
    lines = text.split(b"\n")
    width = max(map(len, lines))
    if width not in _WIDTHS:
        return text
    joined, start = lines[:1], 0
    for above, line in pairwise(lines):
        bare = line.lstrip(_INDENT)
        word = bare.split(b" ", 1)[0]
        if word and above.strip(_INDENT) and len(above) + 1 + len(word) > width and not _NEW_LINE.match(bare):
            joined[start] += b" " + bare
            joined.append(b"")
        else:
            start = len(joined)
            joined.append(line)
    return b"\n".join(joined)


def faults_over_lines(text: bytes, matches_in: Callable[[bytes], Iterable[Match]]) -> list[Match]:
    """Faults in messages that hard line breaks hide: those of the text without them. Its marks are the text's own."""
    joined = unwrapped(text)
    return [] if joined == text else [match for match in matches_in(joined) if match.rule.cause is not None]
