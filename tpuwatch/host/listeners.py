"""Who listens on the ports of runtime metrics: only processes that hold the TPU, or anybody.

Any user can listen on a port of a high number, and answer as the runtime does or not at all. So a port counts as the
runtime's only while nobody listens there but processes that have a TPU device open, root, or tpuwatch's own user.
/proc/net/tcp names the user of each socket without privileges; its process follows from the files that it has open.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.model import Listener

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator

    from tpuwatch.host.procfs import ProcFs

_MAX_BYTES: Final = 1 << 22  # of a table; sockets that listen come first in it
_TABLES: Final = ("net/tcp", "net/tcp6")
_LISTENS: Final = b"0A"


@dataclass(frozen=True, slots=True)
class ListeningSocket:
    """A socket that listens: on which port, whose, and its inode."""

    port: int
    uid: int
    inode: int


class Listeners:
    """Remembers since when each port has had the same listeners."""

    def __init__(self, processes: ProcFs) -> None:
        self._processes = processes
        self._since: dict[tuple[int, frozenset[int]], float] = {}

    def look(self, ports: Iterable[int], held: Collection[int], now: float, monotonic: float) -> tuple[Listener, ...]:
        """Those of the ports on which only who holds the TPU, root, or tpuwatch's own user listens.

        `held` are the inodes of the sockets of processes that have a device open.
        """
        ports = list(ports)
        if not ports:  # the kernel takes milliseconds for the tables, however few sockets there are
            self._since = {}
            return ()
        sockets: dict[int, set[ListeningSocket]] = {}
        for raw in (self._processes.read(table, _MAX_BYTES) for table in _TABLES):
            if len(raw) == _MAX_BYTES:  # another listener may be in what is cut off
                self._since.clear()
                return ()
            for socket in parse_sockets(raw):
                sockets.setdefault(socket.port, set()).add(socket)
        since: dict[tuple[int, frozenset[int]], float] = {}
        for port in ports:
            found = sockets.get(port)
            if found and all(is_trusted(one.uid) or one.inode in held for one in found):
                key = port, frozenset(one.inode for one in found)
                since[key] = self._since.get(key, monotonic)
        self._since = since
        return tuple(Listener(port, round(now - (monotonic - first), 2)) for (port, _), first in since.items())


def is_trusted(uid: int | None) -> bool:
    """Whether no ordinary user can start a process of this user: root, and tpuwatch's own."""
    return uid in (0, os.geteuid())


def parse_sockets(raw: bytes) -> Iterator[ListeningSocket]:
    """The sockets in /proc/net/tcp or tcp6 that listen; other lines are skipped."""
    for line in raw.splitlines()[1:]:
        fields = line.split(None, 10)
        if len(fields) > 9 and fields[3] == _LISTENS:
            try:
                yield ListeningSocket(int(fields[1].rpartition(b":")[2], 16), int(fields[7]), int(fields[9]))
            except ValueError:
                continue
