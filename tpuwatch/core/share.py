"""Files that come with tpuwatch beside its code: its documentation, systemd units and the example configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Final

_PACKAGE: Final = Path(__file__).parents[1]
_IN_WHEEL: Final = _PACKAGE / "share"  # pyproject.toml puts them there
_ROOT: Final = _IN_WHEEL if _IN_WHEEL.is_dir() else _PACKAGE.parent  # of a checkout


def installed(name: str) -> str:
    """Where such a file is on this machine, by its name in the repository: `docs/logs.md`."""
    return str(_ROOT / name)
