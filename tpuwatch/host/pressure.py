"""How long programs of this machine have had to wait for disks and memory, as the kernel counts it (PSI).

Source: https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from tpuwatch.host.procfs import ProcFs

_TOTAL: Final = re.compile(rb"^some .*\btotal=(\d{1,20})", re.MULTILINE)
_MAX_BYTES: Final = 1 << 12
_MICROSECOND: Final = 1e-6


def waited_seconds(processes: ProcFs) -> float | None:
    """Seconds since boot in which at least one program waited for a disk or for memory; None where the kernel does not
    count them. Programs that wait for both count twice."""
    found = [_TOTAL.search(processes.read(f"pressure/{name}", _MAX_BYTES)) for name in ("io", "memory")]
    totals = [int(match[1]) for match in found if match is not None]
    return sum(totals) * _MICROSECOND if len(totals) == len(found) else None
