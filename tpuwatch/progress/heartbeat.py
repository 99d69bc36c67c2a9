"""What a datagram of `tpuwatch.workload` says. Any user of the machine can send any bytes."""

from __future__ import annotations

import json
import math
from typing import Any, Final

from tpuwatch.model import StepReport
from tpuwatch.workload import MAX_BYTES, MAX_NUMBERS, NAME

_MAX_STEP: Final = 10**15
_MAX_SECONDS: Final = 86_400.0 * 365
_LOSSES: Final = ("loss", "train_loss", "total_loss")
_TOKENS: Final = ("tokens_per_second", "tokens_per_sec", "tokens_per_s")


class MalformedError(ValueError):
    """The bytes are no heartbeat."""


def read_heartbeat(message: bytes) -> tuple[str, int, StepReport]:
    """The loop's name, how many steps the message is about (0: not known), and the progress. Raises MalformedError."""
    if len(message) > MAX_BYTES:
        raise MalformedError(f"more than {MAX_BYTES} bytes")
    try:
        said = json.loads(message)
    except (ValueError, RecursionError) as error:
        raise MalformedError("no JSON") from error
    if not isinstance(said, dict):
        raise MalformedError("no object")
    name = said.get("name", "")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise MalformedError("the name")
    numbers = said.get("numbers", {})
    nan = said.get("nan", [])
    if not isinstance(numbers, dict) or not isinstance(nan, list) or len(numbers) > MAX_NUMBERS:
        raise MalformedError("the numbers")
    steps = _whole(said, "steps", 0)
    seconds, waited = _seconds(said, "seconds"), _seconds(said, "input_seconds")
    progress = StepReport(
        step=_whole(said, "step"),
        loss=_first(numbers, _LOSSES),
        step_seconds=seconds / steps if steps and seconds else None,
        tokens_per_second=_first(numbers, _TOKENS),
        input_seconds=min(waited or 0.0, seconds) / steps if steps and seconds else None,
        nan=tuple(one for one in nan[:MAX_NUMBERS] if isinstance(one, str) and one.isidentifier() and len(one) <= 64),
        done=said.get("done") is True,
    )
    return name, steps, progress


def _whole(said: dict[str, Any], key: str, default: int | None = None) -> int:
    value = said.get(key, default)
    if type(value) is not int or not 0 <= value <= _MAX_STEP:
        raise MalformedError(key)
    return value


def _seconds(said: dict[str, Any], key: str) -> float | None:
    value = said.get(key)
    if value is None:
        return None
    if type(value) not in (int, float) or not 0 <= value <= _MAX_SECONDS:
        raise MalformedError(key)
    return float(value)


def _first(numbers: dict[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = numbers.get(name)
        if isinstance(value, float) and math.isfinite(value):
            return value
    return None
