"""Who else can change a file: whoever can change what is run, or what says what is run, decides what a service does."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_MAX_LINKS: Final = 40  # as the kernel has it


def other_author(path: Path, trusted: Collection[int] | None = None) -> str:
    """Who beside root and this user can change the file: "FILE can be changed by user 1001"; "" if nobody else can.

    FILE is the file, a link to it or a directory above one of these. `trusted`: other uids than root and this user.
    """
    uids = (0, os.geteuid()) if trusted is None else trusted
    for place in places(path):
        if who := who_may_change(place, uids):
            return f"{place} can be changed by {who}"
    return ""


def places(path: Path) -> Iterator[Path]:
    """The file and the directories above it; for each link among them also those of what it leads to."""
    pending, seen, links = [path.absolute()], set[Path](), 0
    while pending:
        place = pending.pop()
        for one in (place, *place.parents):
            if one in seen:
                continue
            seen.add(one)
            yield one
            with contextlib.suppress(OSError):  # it is none, or this user may not look at it
                if links < _MAX_LINKS:
                    pending.append(one.parent / one.readlink())
                    links += 1


def has_members(group: int, trusted: Collection[int]) -> bool:
    """True if any other user is in the group: what it may write they may."""
    import grp
    import pwd

    users = {user.pw_name: user.pw_uid for user in pwd.getpwall()}
    try:
        named = grp.getgrgid(group).gr_mem
    except KeyError:  # whoever gets the number
        return True
    uids = {users.get(name, -1) for name in named} | {user.pw_uid for user in pwd.getpwall() if user.pw_gid == group}
    return not uids <= set(trusted)


def who_may_change(
    path: Path,
    trusted: Collection[int],
    *,
    adding: bool = False,
    has_members: Callable[[int, Collection[int]], bool] = has_members,
) -> str:
    """The others who may change a file, or replace what is in a directory; "" if there are none, or nothing is there.

    `adding`: also to put a file into a directory counts.
    """
    try:
        entry = path.lstat()
    except OSError:
        return ""
    if entry.st_uid not in trusted:
        return f"user {entry.st_uid}"
    # In a sticky directory, as /tmp, only its owner may replace a file.
    sticky = stat.S_ISDIR(entry.st_mode) and entry.st_mode & stat.S_ISVTX and not adding
    holds = stat.S_ISDIR(entry.st_mode) or stat.S_ISREG(entry.st_mode)  # the mode of a link means nothing
    if sticky or not holds or not entry.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return ""
    if os.statvfs(path).f_flag & os.ST_RDONLY:  # as a mounted ConfigMap, whose directory has all permissions
        return ""
    if entry.st_mode & stat.S_IWOTH:
        return "everybody"
    return f"group {entry.st_gid}" if entry.st_gid and has_members(entry.st_gid, trusted) else ""
