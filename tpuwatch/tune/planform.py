"""A plan as JSON: what is written, and what of it is taken.

Keys that nobody here knows are left alone: a newer tpuwatch may add some. What is used is looked at closely, because
the values become a job's environment.
"""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import Any, Final

from tpuwatch.tune.config import NEVER_SET
from tpuwatch.tune.model import (
    LAUNCH_VARIABLE,
    SET_VARIABLE,
    WORKLOAD_VARIABLE,
    Advice,
    Decision,
    Fit,
    Plan,
    Setting,
    Step,
    is_workload,
)

VERSION: Final = 1  # keys may be added without a new one
MAX_BYTES: Final = 1 << 18
SUMS_VARIABLE: Final = "TPUWATCH_SUMS"  # checksums of the values of the names in TPUWATCH_SET, in their order

_MAX_VALUE: Final = 8192
_MAX_TEXT: Final = 4000
_MAX_NAME: Final = 16  # of a generation
_MAX_ITEMS: Final = 200
_NAME: Final = re.compile(r"(?:TPU|LIBTPU|TPUWATCH)_[A-Z0-9_]{1,80}")
_REFUSED: Final = frozenset(
    {
        WORKLOAD_VARIABLE,  # marks are made at the start
        SET_VARIABLE,
        SUMS_VARIABLE,
        LAUNCH_VARIABLE,
        *NEVER_SET,
    }
)


class FormError(ValueError):
    """It is no plan that can be used; the message is a clause that says why."""


def may_set(name: str) -> bool:
    """Whether a plan may set a variable of this name."""
    return _NAME.fullmatch(name) is not None and name not in _REFUSED


def dumps(plan: Plan) -> bytes:
    """The plan as JSON. Raises FormError for one that could not be read again."""
    try:
        data = json.dumps({"version": VERSION, **asdict(plan)}, indent=1, allow_nan=False).encode() + b"\n"
    except ValueError as error:
        raise FormError("it holds a number that is none") from error
    loads(data)
    return data


def loads(data: bytes) -> Plan:
    """Read a plan. Raises FormError."""
    if len(data) > MAX_BYTES:
        raise FormError(f"it is larger than {MAX_BYTES} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise FormError("it is no JSON") from error
    if _number(document, "version") > VERSION:
        raise FormError("a newer tpuwatch wrote it")
    settings = tuple(_setting(item) for item in _list(document, "settings"))
    if len({setting.name for setting in settings}) < len(settings):
        raise FormError("a variable is there twice")
    workload = _text(document, "workload")
    if not is_workload(workload):
        raise FormError("workload is no name")
    decision = _decision(_get(document, "decision"))
    generation = _text(document, "generation", _MAX_NAME) if "generation" in document else ""
    return Plan(workload, _number(document, "decided"), settings, decision, _text(document, "config"), generation)


def _setting(item: Any) -> Setting:
    name = _text(item, "name")
    if not may_set(name):
        raise FormError(f"{name[:80]} is no variable that it may set")
    return Setting(name, _text(item, "value", _MAX_VALUE), _text(item, "why"))


def _decision(item: Any) -> Decision:
    step = _text(item, "step")
    if step not in {known.value for known in Step}:
        raise FormError(f"{step[:80]} is no step")
    reasons = _list(item, "reasons")
    if not all(_is_text(reason, _MAX_TEXT) for reason in reasons):
        raise FormError("reasons are no sentences")
    fit = _get(item, "fit")
    return Decision(
        step=Step(step),
        size_bytes=_size(item, "size_bytes"),
        threshold_bytes=_size(item, "threshold_bytes"),
        reasons=tuple(reasons),
        before_bytes=_size(item, "before_bytes"),
        trial=_get(item, "trial") is True,
        conflict=_text(item, "conflict"),
        need_bytes=_size(item, "need_bytes"),
        ceiling_bytes=_size(item, "ceiling_bytes"),
        fast_bytes=_size(item, "fast_bytes"),
        fit=None if fit is None else _fit(fit),
        advice=tuple(Advice(_text(advice, "do"), _text(advice, "source")) for advice in _list(item, "advice")),
    )


def _fit(item: Any) -> Fit:
    return Fit(
        _number(item, "base_seconds"),
        _number(item, "per_byte_seconds"),
        int(_number(item, "launches")),
        int(_number(item, "left_out")),
        _number(item, "spread_seconds"),
    )


def _get(item: Any, key: str) -> Any:
    if type(item) is not dict or key not in item:
        raise FormError(f"{key} is missing")
    return item[key]


def _text(item: Any, key: str, most: int = _MAX_TEXT) -> str:
    value = _get(item, key)
    if not _is_text(value, most):
        raise FormError(f"{key} is no text")
    return str(value)


def _is_text(value: Any, most: int) -> bool:
    return type(value) is str and len(value) <= most and value.isprintable()


def _number(item: Any, key: str) -> float:
    value = _get(item, key)
    if type(value) not in (int, float) or not abs(value) < 1e15:  # NaN is no number either
        raise FormError(f"{key} is no number")
    return float(value)


def _size(item: Any, key: str) -> int | None:
    value = _get(item, key)
    if value is not None and not (type(value) is int and 0 <= value < 1 << 50):
        raise FormError(f"{key} is no size")
    return value


def _list(item: Any, key: str) -> list[Any]:
    value = _get(item, key)
    if type(value) is not list or len(value) > _MAX_ITEMS:
        raise FormError(f"{key} is no list")
    return value
