"""What the file of a record must hold. Imports pydantic, so it is loaded when the first record is read."""

from __future__ import annotations

import re
from itertools import islice
from typing import Annotated, Any, Final

from pydantic import BaseModel, Field, PlainValidator

from tpuwatch.core import clean, is_possible, printable
from tpuwatch.model import WORKLOAD_PATTERN, Cause, Outcome

MAX_LAUNCHES: Final = 16  # of one command
_MAX_NAMES: Final = 100  # variables, causes
_MAX_VALUE: Final = 4096  # characters of a variable's value
_MAX_TEXT: Final = 200
_MAX_FINDINGS: Final = 16  # of one command
_MAX_LINES: Final = 2000  # characters of the recognised lines
_MAX_DETAILS: Final = 40
_MAX_DETAIL: Final = 400  # characters of a detail
_MAX_ALLOCATIONS: Final = 8
_ALLOCATIONS: Final = "allocations"  # the one detail that has details
_DETAIL: Final = re.compile(r"[a-z][a-z0-9_]{0,40}")
_NUMBER: Final = re.compile(r"(?:.*_)?(?:bytes|seconds|count|pid|ratio|expansion)")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 (pydantic reports no other error)
    return clean(value.encode("utf-8", "replace").decode(), _MAX_TEXT)


def _value(value: object) -> str:
    if not isinstance(value, str) or len(value) > _MAX_VALUE:
        raise ValueError("no text, or too long")
    return printable(value)


def _fault(value: object) -> str:
    if not Cause(value).is_fault:
        raise ValueError("no fault")
    return Cause(value).value


def _lines(value: object) -> str:
    if not isinstance(value, str):
        raise ValueError("no text")  # noqa: TRY004 (as above)
    return value.encode("utf-8", "replace").decode()[:_MAX_LINES]


def _details(value: object) -> dict[str, Any]:
    """The details of a finding. What no rule can have captured is left out: views calculate with them."""
    if not isinstance(value, dict):
        raise ValueError("no table")  # noqa: TRY004 (as above)
    allocations = value.get(_ALLOCATIONS)
    found = _plain_details(value)
    if isinstance(allocations, list):
        inner = (_plain_details(one) for one in allocations[:_MAX_ALLOCATIONS] if isinstance(one, dict))
        found[_ALLOCATIONS] = [one for one in inner if "size_bytes" in one]
    return found


def _plain_details(details: dict[str, Any]) -> dict[str, Any]:
    """Numbers and texts, each as the ending of its name says."""
    found: dict[str, Any] = {}
    for name, value in islice(details.items(), _MAX_DETAILS):
        if not _DETAIL.fullmatch(name) or name == _ALLOCATIONS:
            continue
        if isinstance(value, str) and not _NUMBER.fullmatch(name):
            found[name] = value.encode("utf-8", "replace").decode()[:_MAX_DETAIL]
        elif isinstance(value, (int, float)) and not isinstance(value, bool) and is_possible(value):
            found[name] = value
    return found


_Text = Annotated[str, PlainValidator(_text)]
_Lines = Annotated[str, PlainValidator(_lines)]
_Details = Annotated[dict[str, Any], PlainValidator(_details)]
_Value = Annotated[str, PlainValidator(_value)]
_Fault = Annotated[str, PlainValidator(_fault)]
_Variable = Annotated[str, Field(pattern=r"^(TPU|LIBTPU|TPUWATCH)_[A-Z0-9_]{1,80}$")]
_Time = Annotated[float, Field(strict=True, ge=946_684_800, le=4_102_444_800)]  # the years 2000 to 2100
_Moment = Annotated[float, Field(strict=True, allow_inf_nan=False)]  # as a log has it
_Seconds = Annotated[float, Field(strict=True, ge=0, le=1e9)]
_Bytes = Annotated[int, Field(strict=True, ge=0, le=1 << 50)]
_Count = Annotated[int, Field(strict=True, ge=0, le=1 << 31)]
_Status = Annotated[int, Field(strict=True, ge=0, le=255)]
_Variables = Annotated[tuple[_Variable, ...], Field(max_length=_MAX_NAMES)]


class LaunchSchema(BaseModel):
    """A launch in a record. What others than its command know of it is not read."""

    pid: Annotated[int, Field(strict=True, ge=1, lt=1 << 31)]
    started: _Time
    user: _Text = ""
    host: _Text = ""
    build: _Text = ""
    chips: Annotated[int, Field(strict=True, ge=0, le=1 << 16)] | None = None
    chip_kind: _Text = ""
    premapped_bytes: _Bytes | None = None
    premapped_threshold_bytes: _Bytes | None = None
    premapped_partitions: _Count | None = None
    init_seconds: _Seconds | None = None
    outcome: Outcome = Outcome.STARTING
    cause: Cause | None = None
    last_heard: _Time | None = None
    environment: Annotated[dict[_Variable, _Value], Field(max_length=_MAX_NAMES)] = {}
    workload: Annotated[str, Field(pattern=f"^({WORKLOAD_PATTERN})?$")] = ""
    faults: Annotated[dict[_Fault, _Seconds], Field(max_length=_MAX_NAMES)] = {}
    premapped_failures: _Count = 0
    premapped_need_bytes: _Bytes | None = None
    premapped_asked_bytes: _Bytes | None = None
    boot_id: Annotated[str, Field(pattern=r"^[0-9a-f-]{0,64}$")] = ""
    ended: _Time | None = None
    exit_status: _Status | None = None


class FindingSchema(BaseModel):
    """A finding in a record."""

    cause: _Fault
    rule: Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", max_length=_MAX_TEXT)]
    text: _Lines
    count: Annotated[int, Field(strict=True, ge=1, le=1 << 31)]
    first: _Moment
    last: _Moment
    details: _Details = {}


class RecordSchema(BaseModel):
    """A record without its version. Unknown keys are ignored, as a newer tpuwatch may add some."""

    id: Annotated[str, Field(pattern=r"^[0-9A-Za-z_-]{1,64}$")]
    workload: Annotated[str, Field(pattern=f"^{WORKLOAD_PATTERN}$")]
    started: _Time
    ended: _Time
    exit_status: _Status | None
    launches: Annotated[tuple[LaunchSchema, ...], Field(max_length=MAX_LAUNCHES)]
    given: _Variables
    kept: _Variables
    causes: Annotated[tuple[_Fault, ...], Field(max_length=_MAX_NAMES)]
    findings: Annotated[tuple[FindingSchema, ...], Field(max_length=_MAX_FINDINGS)] = ()
