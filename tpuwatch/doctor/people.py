"""Users, and what the permissions of a file let them do."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_IPC_LOCK = 14  # CAP_IPC_LOCK's bit: its holder may pin any amount of memory
_BITS = {"r": 4, "w": 2, "x": 1}


@dataclass(frozen=True, slots=True)
class Person:
    """Who a process runs as."""

    uid: int
    gids: frozenset[int] = frozenset()
    pins_freely: bool = False  # no limit on locked memory holds for it

    def may(self, entry: os.stat_result, wanted: str) -> bool:
        """Whether the owner, group and mode of a file let this user do all of `wanted` ("rwx"). Lists are not seen."""
        if self.uid == 0:
            return True
        bits = sum(_BITS[each] for each in wanted)
        mode = stat.S_IMODE(entry.st_mode)
        if entry.st_uid == self.uid:
            return (mode >> 6) & bits == bits
        if entry.st_gid in self.gids:
            return (mode >> 3) & bits == bits
        return mode & bits == bits


def myself() -> Person:
    """Who the doctor runs as."""
    return Person(os.geteuid(), frozenset((os.getegid(), *os.getgroups())), os.geteuid() == 0)


def from_status(status: str) -> Person:
    """Who a process runs as, by the text of its /proc/PID/status. Raises ValueError for other text."""
    fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in status.splitlines())}
    try:
        uid, gid = int(fields["Uid"][1]), int(fields["Gid"][1])
        groups = frozenset(int(group) for group in fields.get("Groups", ()))
        capabilities = int(fields.get("CapEff", ["0"])[0], 16)
    except (KeyError, IndexError) as error:
        raise ValueError("not a status of a process") from error
    return Person(uid, groups | {gid}, bool(capabilities >> _IPC_LOCK & 1))


def names(passwords: Iterable[str]) -> dict[int, str]:
    """Users' names by their numbers, from the texts of files like /etc/passwd; the first entry counts."""
    found: dict[int, str] = {}
    for line in "\n".join(passwords).splitlines():
        fields = line.split(":")
        if len(fields) > 2 and fields[2].isdecimal() and len(fields[2]) <= 10:
            found.setdefault(int(fields[2]), fields[0][:64])
    return found
