"""The status codes of gRPC, which are those of google.rpc.Code."""

from __future__ import annotations

from typing import Final

# Names in the order of their numbers, from 0.
GRPC_CODES: Final = (
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
)


NUMBERS: Final = {name: number for number, name in enumerate(GRPC_CODES)}


def code_number(name: str) -> int:
    """The number of a code; that of UNKNOWN for an unknown name."""
    return NUMBERS.get(name, NUMBERS["UNKNOWN"])
