"""Users, and what the permissions of a file allow them."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

_IPC_LOCK = 14  # bit of CAP_IPC_LOCK, which allows locking any amount of memory
_BITS = {"r": 4, "w": 2, "x": 1}


@dataclass(frozen=True, slots=True)
class User:
    """The user that a process runs as."""

    uid: int
    gids: frozenset[int] = frozenset()
    may_lock_memory: bool = False  # without a limit

    def may(self, entry: os.stat_result, wanted: str) -> bool:
        """Whether owner, group and mode of a file allow all of `wanted` ("rwx"). Access control lists are ignored."""
        if self.uid == 0:
            return True
        bits = sum(_BITS[each] for each in wanted)
        mode = stat.S_IMODE(entry.st_mode)
        if entry.st_uid == self.uid:
            return (mode >> 6) & bits == bits
        if entry.st_gid in self.gids:
            return (mode >> 3) & bits == bits
        return mode & bits == bits


def current_user() -> User:
    """The user that the doctor runs as."""
    return User(os.geteuid(), frozenset((os.getegid(), *os.getgroups())), os.geteuid() == 0)


def user_of_status(status: str) -> User:
    """The user of a process, from the text of its /proc/PID/status. Raises ValueError for other text."""
    fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in status.splitlines())}
    try:
        uid, gid = int(fields["Uid"][1]), int(fields["Gid"][1])
        groups = frozenset(int(group) for group in fields.get("Groups", ()))
        capabilities = int(fields.get("CapEff", ["0"])[0], 16)
    except (KeyError, IndexError) as error:
        raise ValueError("not a status of a process") from error
    return User(uid, groups | {gid}, bool(capabilities >> _IPC_LOCK & 1))
