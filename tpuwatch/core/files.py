"""Files in directories that the daemon's user and root both write.

Private files, such as the store, are readable by their owner alone. Shared files, such as environment files, are read
by everybody: they are replaced atomically, and trusted only if nobody else can have written them.
"""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

from tpuwatch.core.errors import TuneError

if TYPE_CHECKING:
    from pathlib import Path


_NO_LINK: Final = os.O_NOFOLLOW | os.O_CLOEXEC
_DIRECTORY: Final = _NO_LINK | os.O_RDONLY | os.O_DIRECTORY
_NEW: Final = _NO_LINK | os.O_WRONLY | os.O_CREAT | os.O_EXCL
_READ: Final = _NO_LINK | os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY
_WRITABLE_BY_OTHERS: Final = stat.S_IWGRP | stat.S_IWOTH

# -- private files


def open_private(path: Path, flags: int) -> int:
    """Open the file and return its descriptor. Create it, readable by its owner alone, if it does not exist.

    A file that root creates belongs to the owner of the directory: otherwise the daemon, which runs as another user,
    could not continue what an operator began. Raises OSError.
    """
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, flags | _NO_LINK | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags | _NO_LINK | os.O_CREAT, 0o600)
    try:
        if os.geteuid() == 0:
            directory = path.parent.stat()
            os.fchown(descriptor, directory.st_uid, directory.st_gid)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def create_private(path: Path) -> None:
    """Create the file, empty and with the mode and owner of `open_private`, unless it exists. Raises OSError.

    It gets its name after it is closed here: closing a file releases the locks that the process holds on it.
    """
    fresh = path.with_name(f".{path.name}.{os.urandom(8).hex()}")
    os.close(open_private(fresh, os.O_RDWR))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()


# -- shared files


def write_atomic(path: Path, data: bytes) -> None:
    """Replace the file at `path` atomically: a reader finds the old file or the new one, complete.

    A link at `path` is replaced, not followed. Its directory may be a link that root or this user owns, but no other
    user's. A file that root writes belongs to the owner of the directory. The data is on the disk when this returns.
    Raises TuneError, and leaves the old file unchanged.
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
    """A descriptor of the directory. Raises OSError, and TuneError if it is another user's link."""
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


def read_trusted(path: Path, limit: int) -> bytes | None:
    """The content of a regular file of at most `limit` bytes; None if there is none.

    Raises TuneError for a file that anybody but root, this user and the owner of its directory can have written, for
    links and everything else that is no regular file, and for a file that cannot be read.
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
    # Checked before it is opened: opening a device or a FIFO can have side effects.
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
