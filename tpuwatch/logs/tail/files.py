"""Which files are logs, and how to open them safely.

Anyone may write to /tmp/tpu_logs, so names there are not trusted. A file is opened relative to its directory's
descriptor, never through a link that leaves that directory, and only if it is a regular file: a FIFO, a device or a
socket can neither block a reader nor be read. A link that a user made, to a file or in the path of its directory,
leads only to what belongs to that user: the daemon may read more than the user may.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from tpuwatch.core import TpuwatchError
from tpuwatch.logs.parse.parser import StreamKind

if TYPE_CHECKING:
    from collections.abc import Iterator

LIBTPU_PREFIX = "tpu_driver."
HEAD_BYTES = 256  # at the start of a file distinguish it from another with the same inode

FileKey = tuple[int, int]  # device, inode
Found = dict[str, FileKey]  # path -> identity of the file

_NAME = re.compile(
    r"tpu_driver\.(?P<host>.+)\.(?P<user>[^.]+)\.log\.(?P<severity>INFO|WARNING|ERROR|FATAL)"
    r"\.(?P<started>\d{8}-\d{6})\.(?P<pid>\d{1,10})(?:[.~_-].*)?"
)
_LINK_NAME = re.compile(
    r"tpu_driver\.(?:INFO|WARNING|ERROR|FATAL)"
)  # links to the newest file of the process that started last
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".lz4")
_MOUNTS = "/proc/self/mountinfo"
_NETWORK_TYPES = ("nfs", "cifs", "smb", "fuse", "ceph", "lustre", "9p", "afs", "virtiofs")  # prefixes
_DIRECTORY_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_PLACE_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MAX_LINKS = 40  # in one path, as the kernel has it
_FILE_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY


class Refusal(str, Enum):
    """Why a file is not read. The value is what users and metrics see."""

    LINK = "link"
    DIRECTORY_LINK = "directory_link"
    OUTSIDE = "outside"
    HARD_LINK = "hard_link"
    NOT_REGULAR = "not_regular"
    PERMISSION = "permission"
    UNREADABLE = "unreadable"


_EXPLANATIONS = {
    Refusal.LINK: "it is a link out of its directory, or another user's link to a place that is not that user's; name "
    "the place that it points to in the configuration",
    Refusal.DIRECTORY_LINK: "its path has another user's link to a place that is not that user's; name the place that "
    "it points to in the configuration",
    Refusal.OUTSIDE: "its real place is outside the configured directory; name that place in the configuration",
    Refusal.HARD_LINK: "it has a second name elsewhere and may be another user's file; copy it instead of linking it",
    Refusal.NOT_REGULAR: "it is no regular file; write logs to a regular file",
    Refusal.PERMISSION: "permission is denied; let tpuwatch's user read it, or give it CAP_DAC_READ_SEARCH",
    Refusal.UNREADABLE: "the system cannot open it; look at the file system's state",
}


class RefusedError(TpuwatchError):
    """A file or directory that must not, or cannot, be read."""

    def __init__(self, path: str, reason: Refusal) -> None:
        super().__init__(f"{path} is not read: {_EXPLANATIONS[reason]}")
        self.path = path
        self.reason = reason


@dataclass(frozen=True, slots=True)
class LogFile:
    """A log file as described by its name. All but `path` and `kind` are empty if the name is not of libtpu's form."""

    path: str
    kind: StreamKind
    host: str = ""
    user: str = ""
    severity: str = ""  # INFO, WARNING, ERROR or FATAL
    started: float | None = None  # seconds since the epoch; the name has local time
    pid: int | None = None

    @property
    def stream(self) -> tuple[str, str, str, int] | None:
        """The key shared by all files of one process and severity; None for files without a process."""
        return None if self.pid is None else (self.host, self.user, self.severity, self.pid)


def is_libtpu_name(name: str, *, strict: bool) -> bool:
    """Whether this is the name of a libtpu log. `strict`: only the full form is accepted."""
    if not name.startswith(LIBTPU_PREFIX) or name.endswith(_COMPRESSED):
        return False
    return _NAME.fullmatch(name) is not None if strict else _LINK_NAME.fullmatch(name) is None


def libtpu_file(path: str) -> LogFile:
    """Read a name: tpu_driver.<host>.<user>.log.<SEVERITY>.<YYYYMMDD-HHMMSS>.<pid>, maybe with a suffix."""
    parts = _NAME.fullmatch(os.path.basename(path))
    if parts is None:
        return LogFile(path, StreamKind.LIBTPU)
    host, user, severity, started, pid = parts.group("host", "user", "severity", "started", "pid")
    return LogFile(path, StreamKind.LIBTPU, host, user, severity, _local_time(started), int(pid))


def _local_time(text: str) -> float | None:
    """YYYYMMDD-HHMMSS in the machine's zone as seconds since the epoch."""
    year, month, day = int(text[:4]), int(text[4:6]), int(text[6:8])
    hour, minute, second = int(text[9:11]), int(text[11:13]), int(text[13:15])
    try:
        return time.mktime((year, month, day, hour, minute, second, 0, 0, -1))
    except OverflowError:
        return None


def open_directory(path: str) -> int:
    """Open a directory, through links only where `may_follow` allows each of them, wherever in the path it is.

    Raises FileNotFoundError where nothing is there, RefusedError where it must not be or cannot be read.
    """
    with contextlib.suppress(OSError):
        directory = os.open(path, _DIRECTORY_FLAGS)
        if _real_path(directory) == os.path.abspath(path):
            return directory  # there is no link in the path
        os.close(directory)
    try:
        place = _reach(path, os.path.abspath(path), None, iter(range(_MAX_LINKS)))
        try:
            return os.open(".", _DIRECTORY_FLAGS, dir_fd=place)
        finally:
            os.close(place)
    except OSError as error:
        raise refused(path, error) from error


def may_follow(link: os.stat_result, target: os.stat_result) -> bool:
    """Whether a link is followed: root's and our own always, another user's only to what belongs to that user."""
    return link.st_uid in (0, os.geteuid(), target.st_uid)


def _real_path(directory: int) -> str:
    """The path of an open directory, without links: none can be swapped meanwhile."""
    return os.readlink(f"/proc/self/fd/{directory}")


def _reach(path: str, rest: str, start: int | None, links: Iterator[int]) -> int:
    """A descriptor (O_PATH) of the place `rest`, which begins at the root or in the directory `start`.

    `links` ends when too many were followed. Raises OSError; RefusedError, for `path`, at a link that is not followed.
    """
    place = os.open("/" if rest.startswith("/") else ".", _PLACE_FLAGS, dir_fd=start)
    for name in filter(None, rest.split("/")):
        try:
            following = _step(path, name, place, links)
        finally:
            os.close(place)
        place = following
    return place


def _step(path: str, name: str, directory: int, links: Iterator[int]) -> int:
    """A descriptor of the place that a name in a directory leads to; raises as _reach does."""
    place = os.open(name, _PLACE_FLAGS, dir_fd=directory)
    entry = os.fstat(place)
    if not stat.S_ISLNK(entry.st_mode):
        return place
    try:
        if next(links, None) is None:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        target = _reach(path, os.readlink("", dir_fd=place), directory, links)
    finally:
        os.close(place)
    if may_follow(entry, os.fstat(target)):
        return target
    os.close(target)
    raise RefusedError(path, Refusal.DIRECTORY_LINK)


def directory_stamp(path: str) -> tuple[int, ...]:
    """A directory's identity and timestamps, which change with the names in it; empty if it does not exist."""
    try:
        entry = os.stat(path)
    except OSError:
        return ()
    return (entry.st_dev, entry.st_ino, entry.st_mtime_ns, entry.st_ctime_ns)


def open_directory_below(path: str, root: str) -> int:
    """Open a directory, provided that it really is `root` (a real path) or below it. Raises like open_directory."""
    directory = open_directory(path)
    if os.path.commonpath((_real_path(directory), root)) != root:
        os.close(directory)
        raise RefusedError(path, Refusal.OUTSIDE)
    return directory


def open_log(directory: int, path: str, *, follow: bool = False) -> int:
    """Open the file of `path`'s last name in `directory`, a descriptor.

    `follow`: also through a link that ends in the same directory, where `may_follow` allows it. Raises
    FileNotFoundError where nothing is there, RefusedError for a file that must not or cannot be read.
    """
    name = os.path.basename(path)
    try:
        entry = os.stat(name, dir_fd=directory, follow_symlinks=False)
        if follow and stat.S_ISLNK(entry.st_mode):
            link, name = entry, _neighbour(directory, name, path)
            entry = os.stat(name, dir_fd=directory, follow_symlinks=False)
            if not may_follow(link, entry):
                raise RefusedError(path, Refusal.LINK)
        _require_regular(entry, path)  # first: opening alone can affect a device or a FIFO's writer
        file = os.open(name, _FILE_FLAGS, dir_fd=directory)
    except OSError as error:
        raise refused(path, error) from error
    try:
        opened = os.fstat(file)
        _require_regular(opened, path)
        _require_own_name(opened, os.fstat(directory), path)
    except RefusedError:
        os.close(file)
        raise
    return file


def _neighbour(directory: int, name: str, path: str) -> str:
    """The name that a link points to, if that is in the link's own directory."""
    here = _real_path(directory)
    parent, target = os.path.split(os.path.normpath(os.path.join(here, os.readlink(name, dir_fd=directory))))
    if parent != here:
        raise RefusedError(path, Refusal.LINK)
    return target


def _require_regular(entry: os.stat_result, path: str) -> None:
    if stat.S_ISLNK(entry.st_mode):
        raise RefusedError(path, Refusal.LINK)
    if not stat.S_ISREG(entry.st_mode):
        raise RefusedError(path, Refusal.NOT_REGULAR)


def _require_own_name(entry: os.stat_result, directory: os.stat_result, path: str) -> None:
    """Refuse a hard link that may be another user's file, placed here so that tpuwatch reads it."""
    if entry.st_nlink > 1 and (entry.st_uid != directory.st_uid or directory.st_mode & stat.S_IWOTH):
        raise RefusedError(path, Refusal.HARD_LINK)


def refused(path: str, error: OSError) -> OSError | RefusedError:
    """The exception to raise for an OSError: FileNotFoundError stays as it is, all others become RefusedError."""
    if isinstance(error, FileNotFoundError):
        return error
    reasons = {
        errno.EACCES: Refusal.PERMISSION,
        errno.EPERM: Refusal.PERMISSION,
        errno.ELOOP: Refusal.LINK,
        errno.ENXIO: Refusal.NOT_REGULAR,
    }
    return RefusedError(path, reasons.get(error.errno or 0, Refusal.UNREADABLE))


def read_head(file: int) -> bytes:
    """The first bytes of an open file, at most HEAD_BYTES."""
    return os.pread(file, HEAD_BYTES, 0)


def is_on_network(device: int) -> bool:
    """Whether a device is of a file system whose timestamps another machine or a process sets."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open(_MOUNTS, encoding="utf-8", errors="surrogateescape") as mounts:
            found = (line.partition(" - ") for line in mounts)
            return any(mount.split()[2] == number and kind.startswith(_NETWORK_TYPES) for mount, _, kind in found)
    except OSError:
        return False
