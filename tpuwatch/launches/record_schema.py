"""What the file of a record must hold. Imports pydantic, so it is loaded when the first record is read."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import BaseModel, Field, PlainValidator

from tpuwatch.core import clean, printable
from tpuwatch.model import WORKLOAD_PATTERN, Cause, Outcome

MAX_LAUNCHES: Final = 16  # of one command
_MAX_NAMES: Final = 100  # variables, causes
_MAX_VALUE: Final = 4096  # characters of a variable's value
_MAX_TEXT: Final = 200


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


_Text = Annotated[str, PlainValidator(_text)]
_Value = Annotated[str, PlainValidator(_value)]
_Fault = Annotated[str, PlainValidator(_fault)]
_Variable = Annotated[str, Field(pattern=r"^(TPU|LIBTPU|TPUWATCH)_[A-Z0-9_]{1,80}$")]
_Time = Annotated[float, Field(strict=True, ge=946_684_800, le=4_102_444_800)]  # the years 2000 to 2100
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
