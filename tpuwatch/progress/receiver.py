"""The socket for heartbeats: a Unix datagram socket that every user of the machine may write to.

The kernel itself names the sender's process and user with each datagram (SCM_CREDENTIALS), so that nobody can speak
for another's process.
"""

from __future__ import annotations

import os
import select
import socket
import stat
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.core import TpuwatchError
from tpuwatch.workload import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

MAX_PATH: Final = 107  # bytes that the address of a Unix socket has
_CREDENTIALS: Final = struct.Struct("3i")  # pid, uid, gid
_ANCILLARY: Final = socket.CMSG_SPACE(_CREDENTIALS.size)


class ReceiverError(TpuwatchError):
    """The socket cannot be there; the message says why, and what to do."""


class Datagram(NamedTuple):
    """A datagram and its sender. A pid of 0 is one that cannot be seen from here."""

    message: bytes  # one byte too long, if it was longer
    pid: int
    uid: int


class Receiver:
    """Listens at `path`. Not for several threads at once."""

    def __init__(self, path: Path) -> None:
        """Raises ReceiverError."""
        self.path = path
        if len(os.fsencode(path)) > MAX_PATH:
            raise ReceiverError(
                f"No heartbeats are received: the path {path} is longer than {MAX_PATH} bytes, which no Unix socket "
                "can have; set a shorter one as `socket` under [workload]"
            )
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            _remove_socket(path)
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            self._socket.bind(os.fspath(path))
            path.chmod(0o666)  # jobs run as any user
            self._key = _key(path)
        except OSError as error:
            self._socket.close()
            raise ReceiverError(
                f"No heartbeats are received: the socket {path} cannot be made ({error.strerror}); let tpuwatch's user "
                "write to its directory, or set another path as `socket` under [workload]"
            ) from error

    def wait(self, seconds: float) -> bool:
        """Wait for datagrams, at most so long; whether there are some."""
        readable = select.poll()  # takes any number of open files
        readable.register(self._socket, select.POLLIN)
        return bool(readable.poll(1000 * seconds))

    def take(self, limit: int) -> Iterator[Datagram]:
        """The datagrams that are there, at most `limit`."""
        for _ in range(limit):
            try:
                message, ancillary, _, _ = self._socket.recvmsg(MAX_BYTES + 1, _ANCILLARY)
            except OSError:  # none is left
                return
            pid, uid = 0, -1
            for level, kind, data in ancillary:
                if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(data) >= _CREDENTIALS.size:
                    pid, uid, _ = _CREDENTIALS.unpack(data[: _CREDENTIALS.size])
            yield Datagram(message, pid, uid)

    @property
    def is_there(self) -> bool:
        """Whether the socket still has its name: somebody may have removed it."""
        return _key(self.path) == self._key

    def close(self) -> None:
        """Remove the socket, unless the name is another one's by now."""
        if self.is_there:
            with suppress(OSError):
                self.path.unlink()
        self._socket.close()


def _remove_socket(path: Path) -> None:
    """Remove what an ended daemon left; nothing that is no socket."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(0, "there is something else of that name")
        path.unlink()


def _key(path: Path) -> tuple[int, int] | None:
    try:
        entry = path.lstat()
    except OSError:
        return None
    return entry.st_dev, entry.st_ino
