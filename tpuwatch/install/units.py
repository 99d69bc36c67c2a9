"""The systemd units that the wheel carries, and what becomes of them on a machine."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from tpuwatch.core import installed

SERVICE: Final = "tpuwatch.service"
TIMER: Final = "tpuwatch-prune.timer"
UNITS: Final = (SERVICE, "tpuwatch-prune.service", TIMER)
USERS: Final = "tpuwatch.sysusers.conf"
PACKAGED_PROGRAM: Final = "/opt/tpuwatch/bin/tpuwatch"  # as the units have it

_HEADER: Final = "# Written by `tpuwatch install`, which replaces it; to change it: systemctl edit {name}\n"
_SUM: Final = "# sha256 of what follows: {sum}\n"
_OURS: Final = re.compile(r"# Written by [^\n]*\n# sha256 of what follows: ([0-9a-f]{64})\n(.*)", re.DOTALL)


def packaged(name: str) -> Path:
    """The path of a unit as it comes with tpuwatch."""
    return Path(installed(f"systemd/{name}"))


def unit_text(name: str, program: Path) -> str:
    """A unit that starts `program`, below a header by which `is_unchanged` knows it."""
    text = packaged(name).read_text(encoding="utf-8").replace(PACKAGED_PROGRAM, str(program))
    return _HEADER.format(name=name) + _SUM.format(sum=_digest(text)) + text


def is_unchanged(text: str) -> bool:
    """Whether a unit is as some `tpuwatch install` wrote it."""
    match = _OURS.fullmatch(text)
    return match is not None and match[1] == _digest(match[2])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
