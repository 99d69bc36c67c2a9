"""Removing libtpu's lock file, which stays behind when its process has ended, and then keeps other users out."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from tpuwatch.node.holders import parse_locks

if TYPE_CHECKING:
    from pathlib import Path

_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Anybody may put something else in its place: a link is not followed, and a pipe is not waited for.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_MAX_LOCKS: Final = 1 << 20
_KEPT: Final = frozenset({errno.EPERM, errno.EACCES, errno.EROFS})


def remove(path: Path, locks: Path) -> tuple[bool, str]:
    """Remove the file if it is a regular one that nobody has locked. `locks` is /proc/locks.

    Whether it was there and is removed; and else why it was left, a clause: "" where there was none.
    """
    with ExitStack() as opened:
        try:
            directory = os.open(path.parent, _DIRECTORY)
            opened.callback(os.close, directory)
            file = os.open(path.name, _FILE, dir_fd=directory)
            opened.callback(os.close, file)
            return _remove(path.name, directory, file, locks)
        except FileNotFoundError:
            return False, ""
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                return False, "it is no regular file"
            why = "tpuwatch may not" if error.errno in _KEPT else (error.strerror or str(error))
            return False, why


def _remove(name: str, directory: int, file: int, locks: Path) -> tuple[bool, str]:
    entry = os.fstat(file)
    if not stat.S_ISREG(entry.st_mode):
        return False, "it is no regular file"
    try:
        # It is held for the moment in which it is removed: a program that would lock it now would lock a file
        # without a name, beside which the next program makes another one.
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # more is not allowed to who only reads
    except OSError as error:
        if error.errno in (errno.EAGAIN, errno.EACCES):
            return False, "it is locked"
        raise
    with open(locks, "rb") as listed:
        others = parse_locks(listed.read(_MAX_LOCKS), entry.st_dev, entry.st_ino) - {os.getpid()}
    if others:
        return False, "it is locked"
    now = os.stat(name, dir_fd=directory, follow_symlinks=False)
    if (now.st_dev, now.st_ino) != (entry.st_dev, entry.st_ino):
        return False, "it was just made anew"
    os.unlink(name, dir_fd=directory)
    return True, ""
