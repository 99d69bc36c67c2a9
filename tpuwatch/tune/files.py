"""Whole files that several users read: written in one step, and read only if nobody else could have written them.

The directory is trusted: it is root's, one's own, or one that the configuration names. What lies in it is not.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

from tpuwatch.errors import TuneError

if TYPE_CHECKING:
    from pathlib import Path

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH


def write_whole(path: Path, data: bytes) -> None:
    """Put `data` in the place of whatever is at `path`, in one step: a reader finds the old file or the new one, whole.

    A link at `path` is replaced, not followed. Its directory may be a link of root's or one's own, and no other user's.
    When root writes, the file belongs to the owner of the directory. After the return it is on the disk.
    Raises TuneError, and leaves the old file as it was.
    """
    try:
        directory = _open_directory(path.parent)
    except FileNotFoundError as error:
        raise TuneError(f"cannot write {path}: there is no directory {path.parent}; make it first") from error
    except OSError as error:
        raise TuneError(f"cannot write {path}: {path.parent}: {error.strerror}") from error
    try:
        _replace(directory, path.name, data)
    except IsADirectoryError as error:
        raise TuneError(f"cannot write {path}: a directory is in its place; remove it, or name another file") from error
    except OSError as error:
        raise TuneError(f"cannot write {path}: {error.strerror}; what was there before is untouched") from error
    finally:
        os.close(directory)


def _replace(directory: int, name: str, data: bytes) -> None:
    fresh = f".{name[:100]}.{os.urandom(8).hex()}"
    file = os.open(fresh, _NEW, 0o600, dir_fd=directory)
    try:
        try:
            _fill(file, data)
            if os.geteuid() == 0:
                owner = os.fstat(directory)
                os.fchown(file, owner.st_uid, owner.st_gid)
            os.fchmod(file, 0o644)  # after the owner, whose change may take bits away
            os.fsync(file)
        finally:
            os.close(file)
        os.rename(fresh, name, src_dir_fd=directory, dst_dir_fd=directory)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(fresh, dir_fd=directory)
        raise
    os.fsync(directory)


def _fill(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def _open_directory(path: Path) -> int:
    """A descriptor of the directory. Raises OSError, and TuneError for another user's link."""
    try:
        return os.open(path, _DIRECTORY)
    except NotADirectoryError:
        entry = path.lstat()
        if not stat.S_ISLNK(entry.st_mode):
            raise
        if entry.st_uid not in (0, os.geteuid()):
            raise TuneError(
                f"{path} is another user's link, which is not followed; name the directory that it points to"
            ) from None
        return os.open(path.resolve(), _DIRECTORY)


def read_whole(path: Path, limit: int) -> bytes | None:
    """What is in a regular file of at most `limit` bytes; None where none is there.

    Raises TuneError for a file that others than root, oneself and its directory's owner could have written, for links
    and whatever else is no regular file, and for what cannot be read.
    """
    try:
        directory = _open_directory(path.parent)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise TuneError(f"cannot read {path}: {error.strerror}") from error
    try:
        return _read(directory, path, limit)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise TuneError(f"cannot read {path}: {error.strerror}") from error
    finally:
        os.close(directory)


def _read(directory: int, path: Path, limit: int) -> bytes:
    # Before it is opened: to open a device, or a FIFO that somebody writes to, can have effects.
    if not stat.S_ISREG(os.stat(path.name, dir_fd=directory, follow_symlinks=False).st_mode):
        raise TuneError(f"{path} is not read: it is no regular file; remove it")
    file = os.open(path.name, _READ, dir_fd=directory)
    try:
        entry, above = os.fstat(file), os.fstat(directory)
        if not stat.S_ISREG(entry.st_mode):
            raise TuneError(f"{path} is not read: it is no regular file; remove it")
        _require_trust(entry, above, path)
        data = b""
        while len(data) <= limit and (chunk := os.read(file, limit + 1 - len(data))):
            data += chunk
        if len(data) > limit:
            raise TuneError(f"{path} is not read: it is larger than {limit} bytes; remove it")
        return data
    finally:
        os.close(file)


def _require_trust(entry: os.stat_result, directory: os.stat_result, path: Path) -> None:
    if directory.st_mode & _WRITABLE_BY_OTHERS:
        raise TuneError(f"{path} is not read: others can write to its directory; run `chmod go-w {path.parent}`")
    if entry.st_mode & _WRITABLE_BY_OTHERS:
        raise TuneError(f"{path} is not read: others can write to it; look at what is in it, then `chmod go-w {path}`")
    if entry.st_uid not in (0, os.geteuid(), directory.st_uid):
        raise TuneError(
            f"{path} is not read: it belongs to user {entry.st_uid}, and neither to root, nor to the owner of its "
            "directory, nor to you; remove it"
        )
