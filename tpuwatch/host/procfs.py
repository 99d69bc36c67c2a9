"""Processes in /proc: whether they are alive, since when, their open files and their TPU variables."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from tpuwatch.core import printable

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_PREFIXES = ("TPU_", "LIBTPU_", "TPUWATCH_")
_KERNEL_THREAD: Final = 0x0020_0000  # PF_KTHREAD
_INITIAL_NAMESPACE: Final = "pid:[4026531836]"  # of the host's own processes, a constant of the kernel
_ENDED: Final = (b"Z", b"X")  # zombie, dead
_MAX_ENVIRON = 1 << 20
_MAX_STATUS = 1 << 16
_MAX_COMMAND = 1 << 14  # a command line may be megabytes long
MAX_COMMAND_CHARS: Final = 200  # of a command line that is shown
MAX_FILES: Final = 4096  # of one process that are examined; devices are opened early, so they are included

# Likely secrets in a command line, by what precedes them or how they begin.
_SECRETS: Final = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        r"(://)[^\s/@]+(?=@)",  # https://user:secret@host
        r"(\b(?:bearer|basic) +)\S+",
        r"((?:key|token|secret|password|passwd|passphrase|pwd|auth|authorization|credentials?)"
        r"(?:[\"']?[=:] *[\"']?| +(?=[^ -])))[^\s\"']+",
        r"(\b(?:hf_|gh[opsu]_|github_pat_|glpat-|sk-|ya29\.|xox[abps]-|AKIA|AIza))[\w./-]{8,}",
    )
)


@dataclass(frozen=True, slots=True)
class Process:
    """A process, distinct from later ones with the same pid."""

    pid: int  # in our pid namespace, not in that of its container
    started_ticks: int  # since boot
    started: float  # in seconds since the epoch


class Processes(Protocol):
    """The processes of a machine. A process that cannot be read has an empty environment."""

    def host_name(self) -> str:
        """The machine's name, as libtpu writes it into the names of its logs."""

    def numbered(self, numbers: AbstractSet[int]) -> dict[int, list[Process]]:
        """The processes with one of these pids in their own pid namespace, by that pid: also those in containers."""

    def sees_all(self) -> bool:
        """Whether no process is hidden from us, so that one that is not listed does not exist."""

    def is_there(self, process: Process) -> bool:
        """Whether it has not ended."""

    def environment(self, pid: int) -> dict[str, str]:
        """Its TPU_*, LIBTPU_* and TPUWATCH_* variables; empty if they cannot be read."""


@dataclass(frozen=True, slots=True)
class Stat:
    """/proc/PID/stat. The pair of a pid and its `started_ticks` is unique within a boot."""

    name: str  # the thread's name, which a process may choose
    kernel: bool  # a thread of the kernel, which has no files
    started_ticks: int  # since boot
    ended: bool = False  # all its threads, though its parent has not collected it: it has no open files
    state: str = ""  # of the thread: "S", "D", "Z", …
    parent: int = 0
    group: int = 0  # its process group; 0 if that is outside of our namespace
    cpu_ticks: int = 0  # of CPU time, including that of children that it has collected


class ProcFs:
    """Processes in /proc. For a process that has ended or cannot be read, results are None or empty."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._base = str(root)  # paths are built thousands of times
        self._ticks = os.sysconf("SC_CLK_TCK")

    # -- one process

    def environment(self, pid: int) -> dict[str, str]:
        raw = self.read(f"{pid}/environ", _MAX_ENVIRON)
        return {name: value for name, value in parse_environ(raw).items() if name.startswith(_PREFIXES)}

    def is_there(self, process: Process) -> bool:
        stat = self.stat(process.pid)
        return stat is not None and not stat.ended and stat.started_ticks == process.started_ticks

    def number(self, pid: int) -> int:
        """Its pid in its own namespace, which in a container differs from ours."""
        raw = self.read(f"{pid}/status", _MAX_STATUS)
        numbers = raw.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()  # from our namespace to its own
        return int(numbers[-1]) if numbers and numbers[-1].isdigit() else pid

    def stat(self, pid: int) -> Stat | None:
        """Its /proc/PID/stat."""
        return parse_stat(self.read(f"{pid}/stat", _MAX_STATUS))

    def threads(self, pid: int) -> list[int]:
        """The ids of its threads."""
        try:
            return [int(name) for name in os.listdir(f"{self._base}/{pid}/task") if name.isdecimal()]  # noqa: PTH208
        except OSError:
            return []

    def thread_stat(self, pid: int, thread: int) -> Stat | None:
        """/proc/PID/task/TID/stat: the processor time is that of the thread alone."""
        return parse_stat(self.read(f"{pid}/task/{thread}/stat", _MAX_STATUS))

    def device_number(self, pid: int, descriptor: int | str) -> int | None:
        """The number of the character device that a descriptor of it leads to; None for any other file."""
        try:
            entry = os.stat(f"{self._base}/{pid}/fd/{descriptor}")  # noqa: PTH116 (the paths are texts here)
        except OSError:
            return None
        return entry.st_rdev if stat.S_ISCHR(entry.st_mode) else None

    def status(self, pid: int) -> dict[str, int]:
        """The first number of each numeric field of /proc/PID/status: Uid is the real one, sizes are in KiB."""
        return parse_numbers(self.read(f"{pid}/status", _MAX_STATUS))

    def signals(self, pid: int, mask: str) -> set[int]:
        """The signals in one of the masks of /proc/PID/status, such as SigCgt; empty if it cannot be read."""
        raw = self.read(f"{pid}/status", _MAX_STATUS)
        try:
            bits = int(raw.partition(f"\n{mask}:".encode())[2].partition(b"\n")[0], 16)
        except ValueError:
            return set()
        return {number for number in range(1, bits.bit_length() + 1) if bits >> (number - 1) & 1}

    def arguments(self, pid: int) -> list[str]:
        """Its command line, as far as it is read. Empty ones are left out: a process that renamed itself has them."""
        raw = self.read(f"{pid}/cmdline", _MAX_COMMAND)
        return [word.decode("utf-8", "replace") for word in raw.split(b"\0") if word]

    def command(self, pid: int) -> str:
        """Its command line for display: one line, cut, likely secrets removed. If it has none, its "[name]"."""
        command = shown_command(self.read(f"{pid}/cmdline", _MAX_COMMAND))
        if command:
            return command
        entry = self.stat(pid)
        return "" if entry is None else f"[{shown_command(entry.name.encode())}]"

    def open_files(self, pid: int) -> dict[str, str]:
        """The targets of its first MAX_FILES descriptors, by their numbers.

        Raises PermissionError if they cannot be read. A process without descriptors may be a kernel thread.
        """
        directory = f"{self._base}/{pid}/fd"
        targets: dict[str, str] = {}
        try:
            for name in os.listdir(directory)[:MAX_FILES]:  # noqa: PTH208 (pathlib takes three times as long)
                try:
                    targets[name] = os.readlink(f"{directory}/{name}")  # noqa: PTH115 (as above)
                except (FileNotFoundError, ProcessLookupError):  # noqa: PERF203 (it may be closed meanwhile)
                    continue
        except PermissionError:
            raise
        except OSError:
            return targets  # it has ended
        return targets

    def has_open(self, pid: int, device: int, inode: int) -> bool | None:
        """Whether it has this file open; None if that cannot be read."""
        directory = f"{self._base}/{pid}/fd"
        try:
            for name in os.listdir(directory)[:MAX_FILES]:  # noqa: PTH208 (as above)
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    entry = os.stat(f"{directory}/{name}")  # noqa: PTH116 (as above)
                    if (entry.st_dev, entry.st_ino) == (device, inode):
                        return True
        except PermissionError:
            return None
        except OSError:
            return False  # it has ended
        return False

    def writing_named(self, pid: int, part: str) -> set[tuple[int, int]]:
        """Device and inode of the files that it has open for writing, under a path with `part` in it.

        Raises PermissionError if they cannot be read.
        """
        directory = f"{self._base}/{pid}/fd"
        found = set()
        try:
            for name in os.listdir(directory):  # noqa: PTH208 (as above)
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    link = f"{directory}/{name}"
                    # The mode of the link is the access mode of the descriptor.
                    if part in os.readlink(link) and os.lstat(link).st_mode & stat.S_IWUSR:  # noqa: PTH115 (as above)
                        entry = os.stat(link)  # noqa: PTH116 (as above)
                        found.add((entry.st_dev, entry.st_ino))
        except PermissionError:
            raise
        except OSError:
            return found  # it has ended
        return found

    # -- all of them

    def host_name(self) -> str:
        return os.uname().nodename

    def numbered(self, numbers: AbstractSet[int]) -> dict[int, list[Process]]:
        """Without kernel threads, ended processes, and our pid 1. Reads a file of each process, which takes 20 µs."""
        found: dict[int, list[Process]] = {}
        uptime = self.uptime()
        if uptime is None or not numbers:
            return found
        booted = time.time() - uptime
        for pid in self.pids():
            number = self.number(pid) if pid != 1 else 0
            stat = self.stat(pid) if number in numbers else None
            if stat is not None and not stat.kernel and not stat.ended:
                process = Process(pid, stat.started_ticks, booted + self.seconds(stat.started_ticks))
                found.setdefault(number, []).append(process)
        return found

    def sees_all(self) -> bool:
        """False in a pid namespace, and if /proc hides other users' processes (hidepid), which hides pid 1."""
        return not self.contained() and self.stat(1) is not None

    def contained(self) -> bool:
        """Whether we are in another pid namespace than the host's, and so see only its processes."""
        try:
            return os.readlink(f"{self._base}/self/ns/pid") != _INITIAL_NAMESPACE  # noqa: PTH115 (gives the text itself)
        except OSError:
            return False  # unknown

    def pids(self) -> list[int]:
        """The pids of all visible processes."""
        try:
            return [int(name) for name in os.listdir(self._base) if name.isdecimal()]  # noqa: PTH208 (as above)
        except OSError:
            return []

    def boot_id(self) -> str:
        """The id of the machine's boot."""
        return self.read("sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()

    def uptime(self) -> float | None:
        """Seconds since boot."""
        try:
            return float(self.read("uptime", 256).split()[0])
        except (ValueError, IndexError):
            return None

    def seconds(self, ticks: int) -> float:
        """Clock ticks in seconds."""
        return ticks / self._ticks

    def read(self, name: str, limit: int) -> bytes:
        """The first `limit` bytes of a file below /proc; empty if it cannot be read."""
        try:
            with open(f"{self._base}/{name}", "rb", buffering=0) as file:
                chunks, left = [], limit
                while left > 0 and (chunk := file.read(left)):
                    chunks.append(chunk)
                    left -= len(chunk)
                return b"".join(chunks)
        except OSError:
            return b""


def parse_stat(raw: bytes) -> Stat | None:
    """Parse /proc/PID/stat, or that of a thread; None for other content."""
    # The name in parentheses may contain anything, so fields are counted from the last parenthesis.
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    try:
        parent, group, flags, started = (int(fields[at]) for at in (1, 2, 6, 19))
        # The main thread may end before the others; the process then continues.
        used = sum(int(field) for field in fields[11:15])
        ended = fields[0] in _ENDED and int(fields[17]) <= 1
    except (ValueError, IndexError):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Stat(
        name, bool(flags & _KERNEL_THREAD), started, ended, fields[0].decode("ascii", "replace"), parent, group, used
    )


def parse_environ(raw: bytes) -> dict[str, str]:
    """The variables of /proc/PID/environ."""
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0"))
    return {name: value for name, sign, value in pairs if sign}


def read_bounded(path: str | Path, max_bytes: int) -> bytes:
    """A file's first bytes; empty where it cannot be read."""
    try:
        with open(path, "rb") as file:
            return file.read(max_bytes)
    except OSError:
        return b""


def parse_numbers(raw: bytes) -> dict[str, int]:
    """The numbers of lines like "MemTotal:  123 kB" or "oom_kill 3"; other lines are skipped."""
    found = {}
    for line in raw.splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1].isdigit() and len(words[1]) < 20:
            found[words[0].rstrip(b":").decode("ascii", "replace")] = int(words[1])
    return found


def shown_command(raw: bytes) -> str:
    """A NUL-separated command line for display: one line, cut, likely secrets removed."""
    text = " ".join(raw.rstrip(b"\0").decode("utf-8", "replace").split("\0"))
    text = printable(text).strip()
    for secret in _SECRETS:
        text = secret.sub(r"\1…", text)
    return printable(text, MAX_COMMAND_CHARS - 1)
