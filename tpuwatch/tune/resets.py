"""From when on a workload's launches count: a person may have tuning forget what was before."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tpuwatch.errors import TuneError
from tpuwatch.tune.files import read_whole, write_whole
from tpuwatch.tune.model import is_workload
from tpuwatch.tune.plan import PLANS, make_directory

if TYPE_CHECKING:
    from pathlib import Path

_SUFFIX: Final = ".reset"
_MAX_BYTES: Final = 64
_MOST: Final = 10_000  # files that are looked at


def read_resets(directory: Path) -> dict[str, float]:
    """The workloads that were reset, in a tune directory, and when: seconds since the epoch. Files that hold no time,
    or that others could have written, are left out. Raises TuneError where the directory cannot be looked into."""
    found: dict[str, float] = {}
    try:
        names = [path.name for path in (directory / PLANS).iterdir()][:_MOST]
    except (FileNotFoundError, NotADirectoryError):
        return found
    except OSError as error:
        raise TuneError(f"cannot look into {directory / PLANS}: {error.strerror}") from error
    for name in names:
        workload = name.removesuffix(_SUFFIX)
        if workload != name and is_workload(workload):
            at = _read(directory / PLANS / name)
            if at is not None:
                found[workload] = at
    return found


def reset_path(directory: Path, workload: str) -> Path:
    """Where the reset of a workload is, in a tune directory."""
    return directory / PLANS / f"{workload}{_SUFFIX}"


def write_reset(directory: Path, workload: str, now: float) -> Path:
    """Have what the workload launched before `now` count no more; the file that says so. Raises TuneError."""
    path = reset_path(directory, workload)
    make_directory(path.parent)
    write_whole(path, f"{now:.3f}\n".encode("ascii"))
    return path


def _read(path: Path) -> float | None:
    try:
        raw = read_whole(path, _MAX_BYTES)
        at = float(raw) if raw is not None else math.nan
    except (TuneError, ValueError):
        return None
    return at if math.isfinite(at) else None
