"""The directory of a running simulator: one at a time uses it, and leaves a note there of where everything listens."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.errors import TpuwatchError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

NOTE = "sim.json"
LOCK = "sim.lock"
CONFIG = "tpuwatch.toml"
_MAX_BYTES = 1 << 20


class PlaceError(TpuwatchError):
    """The directory cannot be used, or no simulator runs there."""


def default_directory(environ: Mapping[str, str]) -> Path:
    """Where a simulator of this user runs unless it is told otherwise."""
    return Path(environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / f"tpuwatch-sim-{os.getuid()}"


class Place:
    """The directory while a simulator uses it. Leaving takes the note away; logs and the rest stay."""

    def __init__(self, directory: Path) -> None:
        """Makes the directory if need be. Raises PlaceError when it is another's, or in use."""
        self.directory = directory.absolute()
        try:
            self.directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            _check_owner(self.directory)
            self._lock = os.open(self.directory / LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise PlaceError(
                f"cannot use the directory {self.directory}: {error.strerror}; give another one by --dir"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(self._lock)
            raise PlaceError(
                f"another simulator runs in {self.directory}; end it, or give this one a directory by --dir"
            ) from error

    def __enter__(self) -> Place:  # noqa: PYI034 - Self is in typing from 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def write(self, note: Mapping[str, Any]) -> None:
        """Leave the note; who reads it sees all of it or none."""
        self.put(NOTE, json.dumps(note, indent=2) + "\n")

    def put(self, name: str, text: str) -> Path:
        """A file of the directory with this text. Raises PlaceError when it cannot be written."""
        path, draft = self.directory / name, self.directory / f".{name}.new"
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(path)
        except OSError as error:
            raise PlaceError(f"cannot write {path}: {error.strerror}; give another directory by --dir") from error
        return path

    def close(self) -> None:
        """Take the note away and let the directory go."""
        (self.directory / NOTE).unlink(missing_ok=True)
        os.close(self._lock)


def read_note(directory: Path) -> dict[str, Any]:
    """What the simulator that runs there has left. Raises PlaceError when there is none."""
    try:
        _check_owner(directory)
        with (directory / NOTE).open("rb") as file:
            note = json.loads(file.read(_MAX_BYTES))
    except FileNotFoundError as error:
        raise PlaceError(
            f"no simulator runs in {directory}; start one with `tpuwatch sim`, or say by --dir where it runs"
        ) from error
    except (OSError, ValueError) as error:
        raise PlaceError(f"cannot read {directory / NOTE}: {error}; start the simulator again") from error
    if not isinstance(note, dict) or not isinstance(note.get("control"), str):
        raise PlaceError(f"{directory / NOTE} is no simulator's; say by --dir where yours runs")
    return note


def _check_owner(directory: Path) -> None:
    """In a directory that others may write to, somebody else could have made it and wait for us."""
    found = directory.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise PlaceError(f"{directory} is not a directory of yours; give another one by --dir")
