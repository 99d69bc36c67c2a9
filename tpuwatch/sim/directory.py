"""The directory of a running simulator: its lock, and sim.json with its addresses."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.core import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Mapping

INFO = "sim.json"
LOCK = "sim.lock"
CONFIG = "tpuwatch.toml"
_MAX_BYTES = 1 << 20


class DirectoryError(TpuwatchError):
    """The directory cannot be used, or no simulator runs there."""


def default_directory(environ: Mapping[str, str]) -> Path:
    """Return the directory that a simulator of this user has without --dir."""
    return Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"tpuwatch-sim-{os.getuid()}"


class SimulatorDirectory:
    """A simulator's directory, locked. Closing it removes sim.json; logs and other files stay."""

    def __init__(self, directory: Path) -> None:
        """Creates and locks the directory. Raises DirectoryError if it has another owner or is in use."""
        self.path = directory.absolute()
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self.path)
            self._lock = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise DirectoryError(
                f"cannot use the directory {self.path}: {error.strerror}; give another one by --dir"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise DirectoryError(
                f"another simulator runs in {self.path}; end it, or give this one a directory by --dir"
            ) from error

    def __enter__(self) -> SimulatorDirectory:  # noqa: PYI034 - Self is in typing from 3.11 on
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write_file(self, name: str, text: str) -> Path:
        """Write a file of the directory atomically. Raises DirectoryError when it cannot be written."""
        path, draft = self.path / name, self.path / f".{name}.new"
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            raise DirectoryError(f"cannot write {path}: {error.strerror}; give another directory by --dir") from error
        return path

    def close(self) -> None:
        """Remove sim.json and release the lock."""
        (self.path / INFO).unlink(missing_ok=True)
        os.close(self._lock)


def read_info(directory: Path) -> dict[str, Any]:
    """Return sim.json of the simulator that runs there. Raises DirectoryError if there is none."""
    try:
        _check_owner(directory)
        with (directory / INFO).open("rb") as file:
            info = json.loads(file.read(_MAX_BYTES))
    except FileNotFoundError as error:
        raise DirectoryError(
            f"no simulator runs in {directory}; start one with `tpuwatch sim`, or give its directory by --dir"
        ) from error
    except (OSError, ValueError) as error:
        raise DirectoryError(f"cannot read {directory / INFO}: {error}; start the simulator again") from error
    if not isinstance(info, dict) or not isinstance(info.get("control"), str):
        raise DirectoryError(f"{directory / INFO} is not of a simulator; give its directory by --dir")
    return info


def _check_owner(directory: Path) -> None:
    """Refuse a directory of another user: one with write access to its parent may have created it."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise DirectoryError(f"{directory} is not a directory of yours; give another one by --dir")
