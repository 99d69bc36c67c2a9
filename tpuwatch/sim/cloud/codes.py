"""The numbers of google.rpc.Code, which are those of gRPC, by name."""

from __future__ import annotations

from typing import Final

_NAMES: Final = [
    "OK",
    "CANCELLED",
    "UNKNOWN",
    "INVALID_ARGUMENT",
    "DEADLINE_EXCEEDED",
    "NOT_FOUND",
    "ALREADY_EXISTS",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
    "FAILED_PRECONDITION",
    "ABORTED",
    "OUT_OF_RANGE",
    "UNIMPLEMENTED",
    "INTERNAL",
    "UNAVAILABLE",
    "DATA_LOSS",
    "UNAUTHENTICATED",
]
NUMBERS: Final = {name: number for number, name in enumerate(_NAMES)}


def number_of(name: str) -> int:
    """The number of a code; that of UNKNOWN for a name that there is not."""
    return NUMBERS.get(name, NUMBERS["UNKNOWN"])
