"""Text for people. Text from outside is made printable and cut here: it may hold anything, control characters too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

TEXT_LIMIT: Final = 200
_MAX_SECONDS: Final = 100 * 365 * 86_400.0  # a longer duration is shown as this one


def printable(text: str, limit: int | None = None) -> str:
    """Text with a space for each character that does not print, so it is one line and no terminal obeys it.

    With a `limit` it is cut after that many characters.
    """
    if limit is not None and len(text) > limit:
        return printable(text[:limit]) + "…"
    return "".join(char if char.isprintable() else " " for char in text)


def clean(text: str, limit: int = TEXT_LIMIT) -> str:
    """Printable text on one line, without superfluous spaces, of at most `limit` characters."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1].rstrip() + "…"


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


def listed(parts: Iterable[str]) -> str:
    """ "a", "a and b", "a, b and c"."""
    *most, last = list(parts) or [""]
    return f"{', '.join(most)} and {last}" if most else last
