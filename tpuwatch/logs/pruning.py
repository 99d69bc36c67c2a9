"""Removing libtpu's old log files, which it never does itself. Files that a process may still write are spared.

A name is a claim and no more: only regular files are removed, by their directory's descriptor, never through a link.
"""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass, replace
from enum import Enum
from itertools import islice
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_size
from tpuwatch.logs.tail.files import (
    LIBTPU_PREFIX,
    FileKey,
    LogFile,
    RefusedError,
    is_libtpu_name,
    libtpu_file,
    open_directory,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from collections.abc import Set as AbstractSet
    from pathlib import Path

    from tpuwatch.host import Process, ProcFs

_DAY: Final = 86_400.0
_MAX_FILES: Final = 100_000  # that are looked at in one directory
_SLACK_SECONDS: Final = 60.0  # between a process's start and its file's time


class Spared(str, Enum):
    """Why a file that is old enough, or that takes too much, is left. The value is a clause."""

    OPEN = "a process has it open for writing"
    LIVE = "its process lives"
    RECENT = "it was written in the last day, and who writes it cannot be seen from here"
    FOREIGN = "it is another user's"
    CHANGED = "it has just changed"
    REFUSED = "it may not be removed"


@dataclass(frozen=True, slots=True)
class OldLog:
    """A file that is, or was to be, removed."""

    path: str
    size: int  # bytes that it takes on disk
    written: float  # when it last was, in seconds since the epoch
    why: str  # a clause: why it is to be removed
    spared: Spared | None = None  # why it was left


@dataclass(frozen=True, slots=True)
class PruneResult:
    """What was done."""

    removed: tuple[OldLog, ...]
    spared: tuple[OldLog, ...]
    left_bytes: int  # what the files take that are still there
    problems: tuple[str, ...]  # directories that could not be looked into, a sentence each

    @property
    def freed_bytes(self) -> int:
        """What the removed files took."""
        return sum(old.size for old in self.removed)

    def summary(self) -> str:
        """One sentence."""
        text = f"Removed {len(self.removed)} log files of libtpu ({format_size(self.freed_bytes)}); "
        return text + f"{format_size(self.left_bytes)} are left, and {len(self.spared)} old files were spared."


@dataclass(frozen=True, slots=True)
class _File:
    log: LogFile
    directory: int
    entry: os.stat_result

    @property
    def key(self) -> FileKey:
        return self.entry.st_dev, self.entry.st_ino

    @property
    def size(self) -> int:
        return self.entry.st_blocks * 512


def prune(
    directories: Iterable[Path],
    *,
    days: float,
    mib: float,
    now: float,
    uid_only: int | None,
    processes: ProcFs,
    dry_run: bool = False,
) -> PruneResult:
    """Remove libtpu's log files that are older than `days`, then the oldest until the rest takes at most `mib` MiB.

    `uid_only`: only this user's files; None: everybody's. `dry_run`: return what would be removed, and leave it.
    """
    problems: list[str] = []
    opened: list[int] = []
    files: dict[FileKey, _File] = {}  # a directory may be named twice
    try:
        for path in directories:
            try:
                opened.append(open_directory(str(path)))
                files.update((file.key, file) for file in _files(str(path), opened[-1]))
            except FileNotFoundError:  # noqa: PERF203 (a few directories)
                continue
            except (RefusedError, OSError) as error:
                problems.append(f"{error}.")
        sorted_files = sorted(files.values(), key=lambda file: (file.entry.st_mtime, file.log.path))
        removed, spared = _prune(sorted_files, _Guard(sorted_files, processes, now, uid_only), days, mib, now, dry_run)
    finally:
        for directory in opened:
            os.close(directory)
    total = sum(file.size for file in files.values())
    return PruneResult(tuple(removed), tuple(spared), total - sum(old.size for old in removed), tuple(problems))


def _files(path: str, directory: int) -> Iterator[_File]:
    with os.scandir(directory) as entries:
        for entry in islice(entries, _MAX_FILES):
            if is_libtpu_name(entry.name, strict=True) and entry.is_file(follow_symlinks=False):
                try:
                    status = entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue
                yield _File(libtpu_file(os.path.join(path, entry.name)), directory, status)  # noqa: PTH118 (by the thousand)


def _prune(
    files: Sequence[_File], guard: _Guard, days: float, mib: float, now: float, dry_run: bool
) -> tuple[list[OldLog], list[OldLog]]:
    """What was removed, and what was to be but is spared. `files`: the oldest first."""
    removed, spared = [], []
    left, limit = sum(file.size for file in files), int(mib * (1 << 20))
    for file in files:
        if file.entry.st_mtime < now - days * _DAY:
            why = f"it is older than {days:g} days"
        elif left > limit:
            why = f"all files together take more than {format_size(limit)}"
        else:
            continue
        old = OldLog(file.log.path, file.size, file.entry.st_mtime, why)
        reason = guard.spares(file) or (None if dry_run else _remove(file))
        if reason is None:
            removed.append(old)
            left -= file.size
        else:
            spared.append(replace(old, spared=reason))
    return removed, spared


def _remove(file: _File) -> Spared | None:
    name = os.path.basename(file.log.path)  # noqa: PTH119 (as above)
    try:
        now = os.stat(name, dir_fd=file.directory, follow_symlinks=False)
        same = (now.st_dev, now.st_ino, now.st_mtime_ns) == (*file.key, file.entry.st_mtime_ns)
        if not same or not stat.S_ISREG(now.st_mode):
            return Spared.CHANGED
        os.unlink(name, dir_fd=file.directory)
    except FileNotFoundError:
        return Spared.CHANGED  # another process has removed it
    except OSError:
        return Spared.REFUSED
    return None


class _Guard:
    """Knows which files a process may still write."""

    def __init__(self, files: Sequence[_File], processes: ProcFs, now: float, uid_only: int | None) -> None:
        self._now = now
        self._uid_only = uid_only
        self._host = _short(processes.host_name())
        self._living = processes.numbered({file.log.pid for file in files if file.log.pid is not None})
        self._newest = {file.log.stream: file.key for file in files}  # the oldest come first
        self._open, self._all_seen = written_inodes(processes)

    def spares(self, file: _File) -> Spared | None:
        """Why the file is not removed; None if it is."""
        if self._uid_only is not None and file.entry.st_uid != self._uid_only:
            return Spared.FOREIGN
        if file.key in self._open:
            return Spared.OPEN
        # On a directory that several machines share, others have files open that are not visible here.
        all_seen = self._all_seen and _short(file.log.host) == self._host
        if self._lives(file) and (not all_seen or self._newest[file.log.stream] == file.key):
            return Spared.LIVE
        if not all_seen and self._now - file.entry.st_mtime < _DAY:
            return Spared.RECENT
        return None

    def _lives(self, file: _File) -> bool:
        """Whether the process of its name lives: one that started after the last writing only has the same number."""
        bearers: list[Process] = self._living.get(file.log.pid, []) if file.log.pid is not None else []
        return any(process.started <= file.entry.st_mtime + _SLACK_SECONDS for process in bearers)


def written_inodes(processes: ProcFs) -> tuple[AbstractSet[FileKey], bool]:
    """libtpu's files that processes have open for writing, and whether those are all: of no process was it hidden.

    A reader, such as tpuwatch itself, loses nothing. The path that the kernel reports has the file's present name, in a
    container too. A file that is open under another name alone loses nothing with this one.
    """
    found: set[FileKey] = set()
    all_seen = processes.sees_all()
    for pid in processes.pids():
        try:
            found.update(processes.writing_named(pid, f"/{LIBTPU_PREFIX}"))
        except PermissionError:  # noqa: PERF203 (a process may hide what it has open)
            stat_of = processes.stat(pid)
            all_seen = all_seen and (stat_of is None or stat_of.kernel)
    return found, all_seen


def _short(host: str) -> str:
    """A machine's name without its domain."""
    return host.partition(".")[0]
