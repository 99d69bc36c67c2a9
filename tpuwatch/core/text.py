"""Text for people. Text from outside is made printable and cut here: it may hold anything, control characters too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_LIMIT: Final = 200
_WHOLE: Final = frozenset("0123456789/`")  # what numbers, paths and commands have
_LOOSE: Final = " ,;:(-"  # what no text ends with
_MAX_SECONDS: Final = 100 * 365 * 86_400.0  # a longer duration is shown as this one


def printable(text: str, limit: int | None = None) -> str:
    """Text with a space for each character that does not print, so it is one line and no terminal obeys it.

    With a `limit` it is cut after at most that many characters.
    """
    if limit is not None and len(text) > limit:
        return cut(printable(text[: limit + 1]), limit)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else " " for char in text)


def printable_lines(text: str) -> str:
    """Text in its lines, each of them printable."""
    return "\n".join(map(printable, text.split("\n")))


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """Printable text on one line, without superfluous spaces, of at most `limit` characters."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else cut(line, limit - 1)


def cut(text: str, room: int) -> str:
    """At most the first `room` characters of a longer text, and an ellipsis.

    It ends with a whole word, not within a command in backquotes, and not with a number whose unit may follow. Cut is
    only a word that takes more than half of the room and is neither a number nor a path, or is all of the text.
    """
    end = room if text[room : room + 1].isspace() else max(text.rfind(" ", 0, room), 0)
    if end < room // 2 and not _WHOLE.intersection(text[end:room]):
        end = room
    if text.count("`", 0, end) % 2:
        end = text.rfind("`", 0, end)
    kept = text[:end].rstrip()
    before, _, last = kept.rpartition(" ")
    if not last.strip("([0123456789.,"):
        kept = before
    return f"{kept.rstrip(_LOOSE) or text[:room].rstrip()}…"


def length(seconds: float) -> str:
    """A duration for people; never negative, never endless."""
    import math

    from tpuwatch.core.units import format_seconds

    bounded = min(max(seconds, 0.0), _MAX_SECONDS) if math.isfinite(seconds) else _MAX_SECONDS
    if bounded < 1:
        return "less than 1 s"
    return format_seconds(round(bounded)) if bounded >= 10 else format_seconds(bounded)


def capital(sentence: str) -> str:
    """The sentence with its first letter in upper case; the rest as it is."""
    return sentence[:1].upper() + sentence[1:]


def ended(sentence: str) -> str:
    """The sentence with a full stop, if it has no end yet."""
    return sentence if sentence.endswith((".", "…")) else f"{sentence}."


def counted(number: int, noun: str) -> str:
    """ "1 restart", "2 restarts"."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last
