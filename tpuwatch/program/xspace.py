"""Whether a file is a trace: an XSpace of xplane.proto, by its fields. Of what is none xprof makes empty tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, BinaryIO, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_EVENTS: Final = (
    1,
    3,
    4,
)  # the fields that lead to one: a plane of the space, a line of the plane, an event of the line
_MOST_FIELDS: Final = 15  # a field number beyond it is none of theirs
_FIXED: Final = {1: 8, 5: 4}  # bytes of a value, by its wire type
_LENGTH: Final = 2  # the wire type of a value with its length before it
_MOST_BYTES: Final = 10  # of a number


class NoTraceError(ValueError):
    """Why a file is no trace."""


def require_trace(path: Path) -> None:
    """Raises NoTraceError for a file that is no trace or has no events in it, and OSError."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        if not size:
            raise NoTraceError("it is empty")
        for _ in _fields(file, 0, size):  # to its end: it may be cut short
            pass
        if not _holds(file, 0, size, _EVENTS):
            raise NoTraceError("no event was recorded in it")


def _holds(file: BinaryIO, begin: int, end: int, path: tuple[int, ...]) -> bool:
    """Whether a message has a field, in a field of a field and so on."""
    if not path:
        return True
    inner = [(first, last) for number, first, last in _fields(file, begin, end) if number == path[0]]
    return any(_holds(file, first, last, path[1:]) for first, last in inner)


def _fields(file: BinaryIO, begin: int, end: int) -> Iterator[tuple[int, int, int]]:
    """The fields of a message: number, and where its value begins and ends. Raises NoTraceError for what is none."""
    while begin < end:
        file.seek(begin)
        tag = _number(file)
        number, kind = tag >> 3, tag & 7
        if not 0 < number <= _MOST_FIELDS:
            raise NoTraceError("it is no trace, or damaged")
        value = file.tell()
        if kind == _LENGTH:
            length = _number(file)
            value = file.tell()
            begin = value + length
        elif kind == 0:
            _number(file)
            begin = file.tell()
        else:
            begin = value + _FIXED.get(kind, end)
        if begin > end:
            raise NoTraceError("it is no trace, or cut short")
        yield number, value, begin


def _number(file: BinaryIO) -> int:
    found = 0
    for place in range(_MOST_BYTES):
        byte = file.read(1)
        if not byte:
            break
        found |= (byte[0] & 0x7F) << 7 * place
        if byte[0] < 0x80:  # the bit that says that another byte follows
            return found
    raise NoTraceError("it is no trace, or cut short")
