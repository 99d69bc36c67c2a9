"""Values and times as JSON: one form for everything that is printed, served, logged and stored.

A time appears twice: `started` as ISO 8601 in UTC, `started_epoch` as seconds since the Unix epoch. An enum is its
value, bytes are hexadecimal. Text is made valid Unicode, and numbers that JSON does not have become null.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from enum import Enum
from typing import Any


def dumps(document: Any, *, indent: int | None = None, text: Callable[[str], str] = str) -> str:
    """A document as JSON text in ASCII, without a final newline. The result is always valid JSON.

    `text` gives what is written for a string of the document; keys stay as they are.
    """
    return json.dumps(plain(document, text), indent=indent, allow_nan=False)


def plain(value: Any, text: Callable[[str], str] = str) -> Any:
    """A value converted to the types of JSON."""
    if isinstance(value, Enum):
        return plain(value.value, text)
    if isinstance(value, str):
        return text(value).encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, Mapping):
        return {plain(str(key)): plain(entry, text) for key, entry in value.items()}
    if isinstance(value, Iterable):
        return [plain(entry, text) for entry in value]
    return plain(str(value), text)


def iso(epoch: float | None) -> str | None:
    """A time as `2026-11-20T13:44:14.250Z`; null for None, and for a time out of range."""
    if epoch is None:
        return None
    try:
        moment = datetime.fromtimestamp(epoch, tz=timezone.utc)
    except (ValueError, OverflowError, OSError):
        return None
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def times(name: str, epoch: float | None) -> dict[str, Any]:
    """The two keys of a time: `name` as ISO 8601, and `<name>_epoch` as a number."""
    return {name: iso(epoch), f"{name}_epoch": epoch}


def parse_time(text: str) -> float:
    """Seconds since the Unix epoch of an epoch number or an ISO 8601 time; without a zone, or with UTC, it is UTC.

    Raises ValueError for anything else, and for a time that is not finite.
    """
    try:
        epoch = _epoch(text)
    except ValueError:
        epoch = math.nan
    if not math.isfinite(epoch):
        raise ValueError(f"{text!r} is no time: write seconds since the epoch or 2026-11-20T13:44:14Z")
    return epoch


def _epoch(text: str) -> float:
    try:
        return float(text)
    except ValueError:  # datetime reads a final Z only from Python 3.11 on
        moment = datetime.fromisoformat(text.removesuffix(" UTC").replace("Z", "+00:00"))
        return (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp()
