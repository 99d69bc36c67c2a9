"""Files in the state directory that the daemon's user and root both write."""

from __future__ import annotations

import contextlib
import os
import secrets
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_FLAGS = os.O_NOFOLLOW | os.O_CLOEXEC


def open_private(path: Path, flags: int) -> int:
    """Open the file, which is made if it is not there, readable by its owner alone; its descriptor. Raises OSError.

    What root makes belongs to the owner of the directory: else the daemon, which is another user, could not go on with
    what an operator has begun.
    """
    path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    try:
        descriptor = os.open(path, flags | _FLAGS | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return os.open(path, flags | _FLAGS | os.O_CREAT, 0o600)
    try:
        if os.geteuid() == 0:
            directory = path.parent.stat()
            os.fchown(descriptor, directory.st_uid, directory.st_gid)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def make_private(path: Path) -> None:
    """Make the file, empty and as `open_private` makes it, unless it is there by then. Raises OSError.

    It has its name only once nothing here has it open any more: to close a file ends the process's locks on it.
    """
    fresh = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    os.close(open_private(fresh, os.O_RDWR))
    try:
        with contextlib.suppress(FileExistsError):
            os.link(fresh, path)
    finally:
        fresh.unlink()
