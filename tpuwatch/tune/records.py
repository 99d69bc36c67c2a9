"""The records of `tpuwatch exec` as files: in the daemon's drop box, or in the user's own directory.

In the drop box anybody may leave anything. Only regular files with one name are read, never through a link, up to a
size; what is no record is removed with a word about it, and never holds up the rest.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import secrets
import stat
import time
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import clean
from tpuwatch.tune.record import MAX_BYTES, Record, dumps, loads

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

__all__ = [
    "DIRECTORY",
    "KEPT",
    "Record",
    "Taken",
    "discard",
    "make_box",
    "read_records",
    "take",
    "trim",
    "write_record",
]

DIRECTORY: Final = "launches"  # in the tune directory
BOX_MODE: Final = 0o1733  # anybody may put something in, nobody sees what is there or touches what others put in
KEPT: Final = 500  # records in a user's own directory
MOST: Final = 200  # files that one call of `take` looks into
_MOST_NAMES: Final = 100_000  # that are looked at in the directory
_MOST_REFUSALS: Final = 5  # that are told, of one call
_UNFINISHED_SECONDS: Final = 3600.0  # a file that is being written for longer is nobody's
_AHEAD_SECONDS: Final = 300.0  # by which a record may be ahead of our clock, which may have been set back
_NAME: Final = re.compile(r"[0-9]{1,12}-[0-9a-f]{16}\.json")
_DIRECTORY_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Taken:
    """What was found in the drop box. The records' files are there until `discard` is called."""

    records: tuple[Record, ...] = ()  # the oldest first, by what their names say
    refused: int = 0  # files that were no records, and were removed as far as that was possible
    why: tuple[str, ...] = ()  # a sentence on each of the first of them
    more: bool = False  # there are files that were not looked into


def make_box(directory: Path) -> None:
    """Make the daemon's tune directory and the drop box in it, as they have to be. Raises OSError."""
    directory.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    for path, mode in ((directory, 0o755), (directory / "plans", 0o755), (directory / DIRECTORY, BOX_MODE)):
        path.mkdir(mode=0o700, exist_ok=True)
        with _opened(path, 0 if path == directory else os.O_NOFOLLOW) as descriptor:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                path.chmod(mode)  # whatever the umask is


def write_record(directory: Path, record: Record) -> Path:
    """Leave the record in a tune directory; the path of its file. Raises OSError.

    It has its name only once it is whole.
    """
    box = directory / DIRECTORY
    with contextlib.suppress(PermissionError):  # the drop box is there, and its directory is not ours
        box.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{max(0, int(record.started))}-{secrets.token_hex(8)}.json"
    unfinished = f".{name}"
    with _opened(box) as where:
        descriptor = os.open(unfinished, _WRITE_FLAGS, 0o600, dir_fd=where)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(dumps(record))
                file.flush()
                os.fchmod(file.fileno(), 0o644)  # whatever the umask is
                os.fsync(file.fileno())
            os.rename(unfinished, name, src_dir_fd=where, dst_dir_fd=where)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=where)
            raise
    return box / name


def read_records(directory: Path, *, owner_check: bool = True) -> list[Record]:
    """The records in a tune directory, the oldest first, KEPT at most: the newest. What is no record is left out.

    `owner_check`: only those that this user or root has written. Raises OSError unless there are none.
    """
    found = []
    try:
        with _opened(directory / DIRECTORY) as where:
            names = sorted(filter(_NAME.fullmatch, islice(_names(where), _MOST_NAMES)), key=_age)
            for name in names[-KEPT:]:
                with contextlib.suppress(OSError, ValueError):
                    record, owner = _read(where, name)
                    if not owner_check or owner in (0, os.geteuid()):
                        found.append(record)
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda record: record.started)


def trim(directory: Path, kept: int = KEPT) -> None:
    """Remove all but the newest `kept` records from a user's own directory. Raises OSError."""
    with _opened(directory / DIRECTORY) as where:
        names = sorted(filter(_NAME.fullmatch, islice(_names(where), _MOST_NAMES)), key=_age)
        for name in names[: max(0, len(names) - kept)]:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=where)


def take(directory: Path, *, skip: Collection[str] = (), most: int = MOST, now: float | None = None) -> Taken:
    """Look into the drop box of the daemon's tune directory: into `most` files that are not to be skipped.

    `now`: seconds since the epoch. Raises OSError when the drop box itself cannot be looked at.
    """
    now = time.time() if now is None else now
    records: list[Record] = []
    why: list[str] = []
    refused = looked = 0
    more = False
    with _opened(directory / DIRECTORY) as where:
        for name in sorted(islice(_names(where), _MOST_NAMES), key=_age):
            if name in skip or _unfinished(where, name, now):
                continue
            if looked >= most:
                more = True
                break
            looked += 1
            try:
                record, owner = _read(where, name, now + _AHEAD_SECONDS)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                refused += 1
                gone = _removed(where, name)
                if len(why) < _MOST_REFUSALS:
                    why.append(_refusal(name, error, gone=gone))
            else:
                records.append(replace(record, owner=_user(owner)))
    return Taken(tuple(records), refused, tuple(why), more)


def discard(directory: Path, names: Iterable[str]) -> None:
    """Remove records that were taken. Raises OSError."""
    with _opened(directory / DIRECTORY) as where:
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=where)


@contextlib.contextmanager
def _opened(directory: Path, flags: int = os.O_NOFOLLOW) -> Iterator[int]:
    descriptor = os.open(directory, _DIRECTORY_FLAGS | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _names(where: int) -> Iterator[str]:
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=where)
    try:
        with os.scandir(readable) as entries:
            for entry in entries:
                yield entry.name
    finally:
        os.close(readable)


def _age(name: str) -> tuple[int, str]:
    """The order of the names: by their time; what is no record's name comes last."""
    return (int(name.partition("-")[0]), name) if _NAME.fullmatch(name) else (1 << 62, name)


def _unfinished(where: int, name: str, now: float) -> bool:
    """Whether somebody may be writing it still."""
    if not name.startswith("."):
        return False
    try:
        changed = os.stat(name, dir_fd=where, follow_symlinks=False).st_ctime
    except OSError:
        return True
    return now - changed < _UNFINISHED_SECONDS


def _read(where: int, name: str, latest: float = math.inf) -> tuple[Record, int]:
    """A record that has ended by `latest`, and its owner's number. Raises OSError, and ValueError for what is none."""
    if not _NAME.fullmatch(name):
        raise ValueError("its name is not a record's")
    descriptor = os.open(name, _READ_FLAGS, dir_fd=where)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if found.st_nlink != 1:
            raise ValueError("it has another name besides")
        if found.st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        raw = b""
        while len(raw) <= MAX_BYTES and (piece := file.read(MAX_BYTES + 1 - len(raw))):
            raw += piece
    if len(raw) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    record = replace(loads(raw), file=name)
    if record.ended > latest:
        raise ValueError("it is of the future")
    return record, found.st_uid


def _removed(where: int, name: str) -> bool:
    try:
        try:
            os.unlink(name, dir_fd=where)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=where)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _refusal(name: str, error: Exception, *, gone: bool) -> str:
    reason = error.strerror or "" if isinstance(error, OSError) else str(error)
    what = "It was removed." if gone else "It cannot be removed; remove it yourself."
    return f"{clean(name, 80)} is no record of a launch: {clean(reason)}. {what}"


def _user(number: int) -> str:
    """The name of a user, or the number of one without a name."""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)
