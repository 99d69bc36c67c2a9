"""Sizes, durations and times: parsing as logs write them, formatting for people.

Sizes are bytes with binary prefixes: XLA and libtpu write `28.00G` and mean 28 GiB. Durations are seconds. Anybody can
write a log: impossible numbers are rejected when they are parsed, and shown as unknown.
"""

from __future__ import annotations

import re
from itertools import pairwise

from tpuwatch.core.json_text import iso

MAX_QUANTITY = 2**63 - 1  # of bytes, seconds or a count: 64 bits

_SIZE = re.compile(
    r"(?P<hex>0[xX][0-9a-fA-F]+)|(?P<number>[0-9][0-9,]*(?:\.[0-9]+)?)\s*(?P<prefix>[KMGTPkmgtp]?)i?(?:[Bb]|[Bb]ytes?)?"
)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}

_DURATION_PART = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)\s*(?P<unit>[a-zµ]*)")
_SECONDS = {
    **dict.fromkeys(("ns", "nanosecond", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "µs", "microsecond", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "millisecond", "milliseconds"), 1e-3),
    **dict.fromkeys(("", "s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
    **dict.fromkeys(("d", "day", "days"), 86400.0),
}


def is_possible(number: float) -> bool:
    """Whether it can be a size, a duration or a count: finite, not negative, and at most MAX_QUANTITY."""
    return 0 <= number <= MAX_QUANTITY


def parse_size(text: str) -> int:
    """Bytes from `19.46G`, `512.0M`, `28.00GiB`, `6,532,939,776 bytes`, `4294967296` or `0x61a80`.

    Raises ValueError if the text is no size, or one above MAX_QUANTITY.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"{text!r} is not a size: write a number with an optional K, M, G, T or P, such as 512M or 4294967296"
        )
    size = int(match["hex"], 16) if match["hex"] else _size(match["number"].replace(",", ""), match["prefix"].lower())
    if not is_possible(size):
        raise ValueError(f"{text!r} is too large for a size: no more than {MAX_QUANTITY} bytes are possible")
    return round(size)


def parse_seconds(text: str) -> float:
    """Seconds from `1.5s`, `200ms`, `2m3s`, `1h30m`, `5 minutes` or a bare number.

    Raises ValueError if the text is no duration, or one above MAX_QUANTITY.
    """
    text = text.strip().lower()
    total, end = 0.0, 0
    for part in _DURATION_PART.finditer(text):
        unit = _SECONDS.get(part["unit"])
        if unit is None or text[end : part.start()].strip():
            break
        total += float(part["number"]) * unit
        end = part.end()
    if not end or text[end:].strip():
        raise ValueError(f"{text!r} is not a duration: write a number with ms, s, m or h, such as 1.5s or 2m3s")
    if not is_possible(total):
        raise ValueError(f"{text!r} is too long for a duration: no more than {MAX_QUANTITY} seconds are possible")
    return total


def format_size(size: float) -> str:
    """A size in bytes for people: `15.75 GiB`, `512 MiB`, `100 bytes`. Never raises."""
    if not abs(size) <= MAX_QUANTITY:  # NaN neither
        return "an unknown amount"
    sign, amount = ("-" if size < 0 else ""), float(abs(size))
    if amount < 1024:
        return f"{sign}{int(amount)} bytes"
    for prefix in "KMGTP":
        amount /= 1024
        if amount < 1023.995 or prefix == "P":
            return f"{sign}{amount:.2f}".rstrip("0").rstrip(".") + f" {prefix}iB"
    raise AssertionError("unreachable: the last prefix takes any amount")


def format_seconds(seconds: float) -> str:
    """A duration in seconds for people: `350 ms`, `12.5 s`, `3 min 20 s`, `2 h 5 min`. Never raises."""
    if not abs(seconds) <= MAX_QUANTITY:  # NaN neither
        return "an unknown time"
    if seconds < 1:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 60:
        return f"{seconds:.3g} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if minutes else f"{hours} h"


def format_time(epoch: float) -> str:
    """A time for people, as all commands, pages and messages have it: `2026-11-20 13:44:14 UTC`. Never raises."""
    exact = iso(epoch)
    return f"{exact[:10]} {exact[11:19]} UTC" if exact else "an unknown time"


def format_age(seconds: float) -> str:
    """A duration in seconds as one token, by its two largest units: `43s`, `2m22s`, `3h5m`, `12d4h`. Never raises."""
    if not abs(seconds) <= MAX_QUANTITY:  # NaN neither
        return "unknown"
    whole = max(0, int(seconds))
    for (unit, size), (smaller_unit, smaller) in pairwise((("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))):
        if whole >= size:
            more = whole % size // smaller
            return f"{whole // size}{unit}" + (f"{more}{smaller_unit}" if more else "")
    return f"{whole}s"


def _size(number: str, prefix: str) -> float:
    unit: int = 1024 ** _POWERS[prefix]
    return float(number) * unit if "." in number else int(number) * unit
