"""What /proc says of a process: whether it lives, since when, what it has open, and the TPU variables it has."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

_PREFIXES = ("TPU_", "LIBTPU_", "TPUWATCH_")
_KERNEL: Final = 0x0020_0000  # PF_KTHREAD
_INITIAL_NAMESPACE: Final = "pid:[4026531836]"  # of the host's own processes: a constant of the kernel
_ENDED: Final = (b"Z", b"X")  # states of a zombie, and of one that is just being waited for
_MAX_ENVIRON = 1 << 20
_MAX_STATUS = 1 << 16
_MAX_COMMAND = 1 << 14  # bytes that are read of a command line, which may be megabytes long
COMMAND_CHARS: Final = 200  # that are shown of it
MAX_FILES: Final = (
    4096  # open files that are looked at in one process; devices are opened early, so they are among them
)

# What looks like a secret in a command line, by what stands before it, or by how it begins itself.
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
    """A process, and no later one of the same number."""

    pid: int  # the machine's own number for it, whatever it is called in a container
    started_ticks: int  # since boot
    started: float  # in seconds since the epoch


class Processes(Protocol):
    """The processes of a machine. A process that may not be looked at is like one without an environment."""

    def host_name(self) -> str:
        """The machine's name, as libtpu puts it into the names of its logs."""

    def numbered(self, numbers: AbstractSet[int]) -> dict[int, list[Process]]:
        """The processes that know themselves by one of these numbers, by number: also those in containers."""

    def sees_all(self) -> bool:
        """Whether no process is hidden from us, so that one that is not seen is not there."""

    def is_there(self, process: Process) -> bool:
        """Whether it has not ended."""

    def environment(self, pid: int) -> dict[str, str]:
        """Its TPU_*, LIBTPU_* and TPUWATCH_* variables, as far as they may be read."""


@dataclass(frozen=True, slots=True)
class Stat:
    """What /proc/PID/stat says. A pid and its `started_ticks` together never come back in one boot."""

    name: str  # the thread's name, which a process may choose
    kernel: bool  # a thread of the kernel, which has no files
    started_ticks: int  # since boot
    ended: bool = False  # all of it, though whoever started it has not asked how: it has nothing open any more
    state: str = ""  # of the thread: "S", "D", "Z", …
    parent: int = 0
    group: int = 0  # its process group; 0 for one that cannot be seen from here


class ProcFs:
    """Processes as /proc shows them. What has ended, may not be read or makes no sense is None or empty."""

    def __init__(self, root: Path = Path("/proc")) -> None:
        self._root = root
        self._base = str(root)  # paths are put together thousands of times
        self._ticks = os.sysconf("SC_CLK_TCK")

    # -- one process

    def environment(self, pid: int) -> dict[str, str]:
        raw = self.read(f"{pid}/environ", _MAX_ENVIRON)
        pairs = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0"))
        return {name: value for name, _, value in pairs if name.startswith(_PREFIXES)}

    def is_there(self, process: Process) -> bool:
        stat = self.stat(process.pid)
        return stat is not None and not stat.ended and stat.started_ticks == process.started_ticks

    def number(self, pid: int) -> int:
        """The number that the process itself knows: in a container another one than ours."""
        raw = self.read(f"{pid}/status", _MAX_STATUS)
        numbers = raw.partition(b"\nNSpid:")[2].partition(b"\n")[0].split()  # from our namespace to its own
        return int(numbers[-1]) if numbers and numbers[-1].isdigit() else pid

    def stat(self, pid: int) -> Stat | None:
        """Its name and age."""
        return parse_stat(self.read(f"{pid}/stat", _MAX_STATUS))

    def status(self, pid: int) -> dict[str, int]:
        """The fields of /proc/PID/status that begin with a number, that number: Uid is the real one, sizes are KiB."""
        return parse_numbers(self.read(f"{pid}/status", _MAX_STATUS))

    def signals(self, pid: int, mask: str) -> set[int]:
        """The signals in one of the masks of /proc/PID/status, such as SigCgt; none where it cannot be read."""
        raw = self.read(f"{pid}/status", _MAX_STATUS)
        try:
            bits = int(raw.partition(f"\n{mask}:".encode())[2].partition(b"\n")[0], 16)
        except ValueError:
            return set()
        return {number for number in range(1, bits.bit_length() + 1) if bits >> (number - 1) & 1}

    def command(self, pid: int) -> str:
        """Its command line, fit to be shown: one line, cut, without what looks like a secret. Else its "[name]"."""
        command = shown_command(self.read(f"{pid}/cmdline", _MAX_COMMAND))
        if command:
            return command
        entry = self.stat(pid)
        return "" if entry is None else f"[{shown_command(entry.name.encode())}]"

    def open_files(self, pid: int) -> list[str]:
        """What its descriptors lead to, of the first MAX_FILES.

        Raises PermissionError when they may not be seen. A process without descriptors may be one of the kernel's.
        """
        directory = f"{self._base}/{pid}/fd"
        targets: list[str] = []
        try:
            for name in os.listdir(directory)[:MAX_FILES]:  # noqa: PTH208 (pathlib takes three times as long)
                try:
                    targets.append(os.readlink(f"{directory}/{name}"))  # noqa: PTH115 (as above)
                except (FileNotFoundError, ProcessLookupError):  # noqa: PERF203 (it may be closed meanwhile)
                    continue
        except PermissionError:
            raise
        except OSError:
            return targets  # it has ended
        return targets

    def has_open(self, pid: int, device: int, inode: int) -> bool | None:
        """Whether it has this very file open; None when that may not be seen."""
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

        Raises PermissionError when they may not be seen.
        """
        directory = f"{self._base}/{pid}/fd"
        found = set()
        try:
            for name in os.listdir(directory):  # noqa: PTH208 (as above)
                with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                    link = f"{directory}/{name}"
                    # The link's own mode tells what the descriptor may be used for.
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
        """As said there, without threads of the kernel, what has ended, and number 1 of those that we see, an init.

        Reads a file of every process that there is: 20 µs each.
        """
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
        """As said there. Where /proc hides the processes of others (hidepid), the first one is among them."""
        return not self.contained() and self.stat(1) is not None

    def contained(self) -> bool:
        """Whether we are in a pid namespace of our own, so that we see no process outside of it."""
        try:
            return os.readlink(f"{self._base}/self/ns/pid") != _INITIAL_NAMESPACE  # noqa: PTH115 (gives the text itself)
        except OSError:
            return False  # it is not known

    def pids(self) -> list[int]:
        """The processes that there are, and that may be known to be there."""
        try:
            return [int(name) for name in os.listdir(self._base) if name.isdecimal()]  # noqa: PTH208 (as above)
        except OSError:
            return []

    def boot_id(self) -> str:
        """The id of the machine's boot."""
        return self.read("sys/kernel/random/boot_id", 64).decode("ascii", "replace").strip()

    def uptime(self) -> float | None:
        """Seconds since the machine's boot."""
        try:
            return float(self.read("uptime", 256).split()[0])
        except (ValueError, IndexError):
            return None

    def seconds(self, ticks: int) -> float:
        """Clock ticks in seconds."""
        return ticks / self._ticks

    def read(self, name: str, limit: int) -> bytes:
        """The first `limit` bytes of a file below /proc; nothing where it cannot be read."""
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
    """Read /proc/PID/stat, or that of one of its threads; None for anything that is not like it."""
    # The name in parentheses may hold anything; the fields behind it are counted from the last parenthesis.
    head, _, tail = raw.rpartition(b")")
    fields = tail.split()
    try:
        parent, group, flags, started = (int(fields[at]) for at in (1, 2, 6, 19))
        # A first thread may end before the others do: then the process goes on.
        ended = fields[0] in _ENDED and int(fields[17]) <= 1
    except (ValueError, IndexError):
        return None
    name = head.partition(b"(")[2].decode("utf-8", "replace")
    return Stat(name, bool(flags & _KERNEL), started, ended, fields[0].decode("ascii", "replace"), parent, group)


def parse_numbers(raw: bytes) -> dict[str, int]:
    """The numbers of lines like "MemTotal:  123 kB" or "oom_kill 3"; other lines are left out."""
    found = {}
    for line in raw.splitlines():
        words = line.split(None, 2)
        if len(words) > 1 and words[1].isdigit() and len(words[1]) < 20:
            found[words[0].rstrip(b":").decode("ascii", "replace")] = int(words[1])
    return found


def shown_command(raw: bytes) -> str:
    """A command line of arguments with NUL between them, fit to be shown."""
    text = " ".join(raw.rstrip(b"\0").decode("utf-8", "replace").split("\0"))
    text = "".join(char if char.isprintable() else " " for char in text).strip()
    for secret in _SECRETS:
        text = secret.sub(r"\1…", text)
    return text if len(text) <= COMMAND_CHARS else text[: COMMAND_CHARS - 1] + "…"
