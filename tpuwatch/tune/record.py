"""The record of one `tpuwatch exec`: what was run, which launches it showed, how it ended. As JSON, and back.

Anybody may have written what is read here: each value is checked, cut and cleaned, and what does not fit is refused.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.health.words import clean
from tpuwatch.model import Cause, Launch, Outcome
from tpuwatch.tune.model import WORKLOAD_PATTERN

if TYPE_CHECKING:
    from collections.abc import Callable

VERSION: Final = 1
MAX_BYTES: Final = 256 << 10  # of a record's file
MAX_LAUNCHES: Final = 16  # of one command
_MAX_NAMES: Final = 100  # variables, causes
_MAX_VALUE: Final = 4096  # characters of a variable's value
_TEXT: Final = 200
_TIMES: Final = (946_684_800.0, 4_102_444_800.0)  # the years 2000 to 2100
_MAX_SECONDS: Final = 1e9
_MAX_SIZE: Final = 1 << 50
_LEEWAY_SECONDS: Final = 60.0  # that clocks may differ by, or be set by meanwhile
_ID: Final = re.compile(r"[0-9A-Za-z_-]{1,64}")
_VARIABLE: Final = re.compile(r"(TPU|LIBTPU|TPUWATCH)_[A-Z0-9_]{1,80}")
_BOOT_ID: Final = re.compile(r"[0-9a-f-]{0,64}")
_WORKLOAD: Final = re.compile(WORKLOAD_PATTERN)


@dataclass(frozen=True, slots=True)
class Record:
    """One run of `tpuwatch exec`. Times are seconds since the epoch."""

    id: str  # the launch's, as TPUWATCH_LAUNCH has it
    workload: str
    started: float
    ended: float
    exit_status: int | None  # as the shell counts: 128 and more for signals
    launches: tuple[Launch, ...] = ()  # processes of the command that initialised the TPU
    given: tuple[str, ...] = ()  # variables that tpuwatch set
    kept: tuple[str, ...] = ()  # variables that were set already and stayed so
    causes: tuple[str, ...] = ()  # of its findings, in the order in which to act
    version: int = VERSION
    owner: str = ""  # the user whose file it is; not part of it
    file: str = ""  # the file's name in its directory; not part of it


def dumps(record: Record) -> bytes:
    """The record as a line of JSON."""
    document = asdict(record)
    for name in ("owner", "file"):
        del document[name]
    for launch in document["launches"]:
        del launch["id"]
    return f"{json.dumps(document, allow_nan=False)}\n".encode("ascii")


def loads(raw: bytes) -> Record:
    """The record in a file's bytes. Raises ValueError, with what is wrong in it, for anything else."""
    try:
        document = json.loads(raw)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(document, dict):
        raise ValueError("it is no table")  # noqa: TRY004 (all that is wrong with a file is a ValueError)
    if document.get("version") != VERSION:
        raise ValueError(f"its version is not {VERSION}")
    found: dict[str, Any] = {name: _checked(document, name, check) for name, check in _RECORD.items()}
    if found["ended"] < found["started"]:
        raise ValueError("it ends before it starts")
    first, last = found["started"] - _LEEWAY_SECONDS, found["ended"] + _LEEWAY_SECONDS
    if not all(first <= launch.started <= last for launch in found["launches"]):
        raise ValueError("a launch in it is of another time")
    return Record(**found)


def _checked(document: dict[str, Any], name: str, check: Callable[[Any], Any]) -> Any:
    if name not in document:
        raise ValueError(f"it has no {name}")
    try:
        return check(document[name])
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise ValueError(f"its {name} cannot be right") from error


def _launch(document: Any) -> Launch:
    if not isinstance(document, dict):
        raise TypeError("no table")
    found = {name: _checked(document, name, check) for name, check in _LAUNCH.items() if name in document}
    for needed in ("pid", "started"):
        if needed not in found:
            raise ValueError(f"no {needed}")
    return Launch(**found)


# -- the checks of single values


def _matching(pattern: re.Pattern[str]) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if not isinstance(value, str) or not pattern.fullmatch(value):
            raise ValueError("other characters")
        return value

    return check


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("no text")
    return clean(value.encode("utf-8", "replace").decode(), _TEXT)


def _whole(least: int, most: int) -> Callable[[Any], int]:
    def check(value: Any) -> int:
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError("out of its range")
        return value

    return check


def _number(least: float, most: float) -> Callable[[Any], float]:
    def check(value: Any) -> float:
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not math.isfinite(value):
            raise ValueError("no number")
        if not least <= value <= most:
            raise ValueError("out of its range")
        return float(value)

    return check


def _or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


def _several(check: Callable[[Any], Any], most: int) -> Callable[[Any], tuple[Any, ...]]:
    def several(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise ValueError("no list, or too long")
        return tuple(check(one) for one in value)

    return several


def _pairs(name: Callable[[Any], str], value: Callable[[Any], Any]) -> Callable[[Any], dict[str, Any]]:
    def pairs(found: Any) -> dict[str, Any]:
        if not isinstance(found, dict) or len(found) > _MAX_NAMES:
            raise ValueError("no table, or too long")
        return {name(key): value(entry) for key, entry in found.items()}

    return pairs


def _value(value: Any) -> str:
    if not isinstance(value, str) or len(value) > _MAX_VALUE:
        raise ValueError("no text, or too long")
    return "".join(char if char.isprintable() else " " for char in value)


def _cause(value: Any) -> str:
    if not Cause(value).is_fault:
        raise ValueError("no fault")
    return Cause(value).value


_time = _number(*_TIMES)
_size = _or_none(_whole(0, _MAX_SIZE))
_status = _or_none(_whole(0, 255))
_variable = _matching(_VARIABLE)

_LAUNCH: Final[dict[str, Callable[[Any], Any]]] = {
    "pid": _whole(1, (1 << 31) - 1),
    "started": _time,
    "user": _text,
    "host": _text,
    "build": _text,
    "chips": _or_none(_whole(0, 1 << 16)),
    "chip_kind": _text,
    "premapped_bytes": _size,
    "premapped_threshold_bytes": _size,
    "premapped_partitions": _or_none(_whole(0, 1 << 31)),
    "init_seconds": _or_none(_number(0, _MAX_SECONDS)),
    "outcome": Outcome,
    "cause": _or_none(Cause),
    "last_heard": _or_none(_time),
    "environment": _pairs(_variable, _value),
    "workload": _matching(re.compile(f"({WORKLOAD_PATTERN})?")),
    "faults": _pairs(_cause, _number(0, _MAX_SECONDS)),
    "premapped_failures": _whole(0, 1 << 31),
    "premapped_need_bytes": _size,
    "premapped_asked_bytes": _size,
    "boot_id": _matching(_BOOT_ID),
    "ended": _or_none(_time),
    "exit_status": _status,
}
_RECORD: Final[dict[str, Callable[[Any], Any]]] = {
    "id": _matching(_ID),
    "workload": _matching(_WORKLOAD),
    "started": _time,
    "ended": _time,
    "exit_status": _status,
    "launches": _several(_launch, MAX_LAUNCHES),
    "given": _several(_variable, _MAX_NAMES),
    "kept": _several(_variable, _MAX_NAMES),
    "causes": _several(_cause, _MAX_NAMES),
}
