"""The keys of matches: equal for each copy of a record, so that it counts once."""

from __future__ import annotations

import hashlib
from operator import itemgetter
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpuwatch.logs.parse.frame import Header, HeaderPlaces

KEYED_TEXT: Final = 256  # bytes of a record's message that its key is made from
_DIGEST_BYTES: Final = 12  # of the key of a record, after its time
_UNFRAMED_DIGEST_BYTES: Final = 6  # of the key of a line without a header, after its place: salt and
_OFFSET_BYTES: Final = 6


def framed_key(header: Header, text: bytes, name: str) -> bytes:
    """A key that is equal for every copy of a record, even if its later lines are not written yet.

    Time comes first, so that the index of the store grows at its end.
    """
    minute = int(header.date.replace(b"-", b"")[-4:] + header.clock[:2] + header.clock[3:5])
    line = text[:KEYED_TEXT].partition(b"\n")[0]
    return _key_time(minute, header.second) + _digest(_DIGEST_BYTES, header.raw, line, name.encode())


def _key_time(minute: int, second: float) -> bytes:
    return (int(minute * 60 + second) & 0xFFFFFFFF).to_bytes(4, "big")


def framed_keys(places: HeaderPlaces, lines: Sequence[bytes], texts: Iterable[bytes], name: str) -> list[bytes]:
    """The keys of records of one line each, which have their headers in the same places.

    `texts`: of each the text without a newline, or as much of it as a key is made from.
    """
    moments = list(map(itemgetter(slice(places.date, places.fraction)), lines))
    headers = map(itemgetter(slice(places.start, places.stop)), lines)
    times = _key_times(places, dict(zip(moments, lines, strict=True)))
    tail, join, new_hash = name.encode(), b"\0".join, hashlib.blake2b(digest_size=_DIGEST_BYTES).copy
    keys = []
    for moment, header, text in zip(moments, headers, texts, strict=True):
        digest = new_hash()  # half as long as to make one with its size
        digest.update(join((header, text, tail)))
        keys.append(times[moment] + digest.digest())
    return keys


def _key_times(places: HeaderPlaces, of_moment: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """The beginnings of keys by the texts of their moments, of which a line of each is given."""
    seconds = places.seconds - places.date
    minutes: dict[bytes, int] = {}
    times: dict[bytes, bytes] = {}
    for moment, line in of_moment.items():
        minute = minutes.get(text := moment[:seconds])
        if minute is None:
            minute = minutes[text] = 60 * places.minute(line)
        times[moment] = (minute + int(moment[seconds:]) & 0xFFFFFFFF).to_bytes(4, "big")
    return times


def unframed_key(salt: str, offset: int, text: bytes, name: str) -> bytes:
    """A key of a line and its place in a stream, as repeated text without a header cannot be distinguished otherwise.

    The line is part of it, as what was a copy of the stream so far may go on otherwise.
    """
    return unframed_keys(salt, (offset,), (text[:KEYED_TEXT].partition(b"\n")[0],), name)[0]


def unframed_keys(salt: str, offsets: Iterable[int], texts: Iterable[bytes], name: str) -> list[bytes]:
    """The keys of lines at these offsets. `texts`: of each without a newline, as much of it as a key is made from."""
    start, place = f"{salt[:8]:0>8}", 0xFFFFFFFFFFFF
    head, tail, join = salt.encode(), name.encode(), b"\0".join
    first, of_place = bytes.fromhex(start), start.encode() + b"%012x"
    new_hash = hashlib.blake2b(digest_size=_UNFRAMED_DIGEST_BYTES).copy
    keys = []
    for offset, text in zip(offsets, texts, strict=True):
        digest = new_hash()
        digest.update(join((head, of_place % (offset & place), text, tail)))
        keys.append(first + (offset & place).to_bytes(_OFFSET_BYTES, "big") + digest.digest())
    return keys


def _digest(size: int, *parts: bytes) -> bytes:
    return hashlib.blake2b(b"\0".join(parts), digest_size=size).digest()
