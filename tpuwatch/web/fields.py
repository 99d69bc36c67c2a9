"""The fields of plain data as JSON. Times are as in tpuwatch.core.json_text."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import times

if TYPE_CHECKING:
    from collections.abc import Iterable

_TIMES: Final = frozenset(  # the fields that are times, in whatever document they stand
    (
        *("time", "observed", "now", "started", "ended", "last_heard", "last_success", "last_written", "booted"),
        *("last_oom_kill", "at", "tried", "since", "start", "end", "latest_start", "answered", "silent_since"),
        *("requested", "entered", "began", "suspect_since", "counts_from", "stepped", "heard"),
    )
)


def fields(value: object, names: str) -> dict[str, Any]:
    """The fields of `value` that `names` lists, in that order: times as `times` gives them, enums as their values."""
    document: dict[str, Any] = {}
    for name in names.split():
        one = getattr(value, name)
        if name in _TIMES:
            document.update(times(name, one))
        elif isinstance(one, Enum):
            document[name] = one.value
        else:
            document[name] = list(one) if isinstance(one, tuple) else one
    return document


def rows(values: Iterable[object], names: str) -> list[dict[str, Any]]:
    return [fields(value, names) for value in values]
