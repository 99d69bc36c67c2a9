"""Files in the state directory that the daemon's user and root both write."""

from __future__ import annotations

import os
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
