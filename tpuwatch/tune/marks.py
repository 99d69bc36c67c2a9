"""The marks in a launch's environment: whose launch it is, and which of its variables tpuwatch has set. Pure."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from tpuwatch.model import SET_VARIABLE, SUMS_VARIABLE, WORKLOAD_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping


def launch_marks(workload: str, given: Mapping[str, str]) -> dict[str, str]:
    """The variables that name the workload of a launch, and what of its environment tpuwatch has set."""
    return {
        WORKLOAD_VARIABLE: workload,
        SET_VARIABLE: ",".join(given),
        SUMS_VARIABLE: ",".join(_sum(value) for value in given.values()),
    }


def set_by_tpuwatch(environ: Mapping[str, str]) -> frozenset[str]:
    """The variables that tpuwatch set, unchanged since. The other ones are the operator's own."""
    names = [name for name in environ.get(SET_VARIABLE, "").split(",") if name in environ]
    sums = environ.get(SUMS_VARIABLE)
    if sums is None:
        return frozenset(names)
    known = dict(zip(environ.get(SET_VARIABLE, "").split(","), sums.split(",")))  # noqa: B905 (others may change them)
    return frozenset(name for name in names if known.get(name) == _sum(environ[name]))


def _sum(value: str) -> str:
    return f"{zlib.crc32(value.encode('utf-8', 'surrogateescape')):08x}"
