"""The numbers of google.rpc.Code, which are those of gRPC, by name."""

from __future__ import annotations

from typing import Final

from tpuwatch.codes import GRPC_CODES

NUMBERS: Final = {name: number for number, name in enumerate(GRPC_CODES)}


def number_of(name: str) -> int:
    """The number of a code; that of UNKNOWN for a name that there is not."""
    return NUMBERS.get(name, NUMBERS["UNKNOWN"])
