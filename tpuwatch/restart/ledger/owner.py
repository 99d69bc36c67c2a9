"""Who drives a record: the name of a driver, whether it can still be alive, and when its lease may be taken."""

from __future__ import annotations

import itertools
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.host import ProcFs

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.core import Clock
    from tpuwatch.model import RestartRecord, Target
    from tpuwatch.restart.ledger.base import Stored

_BOOT_ID: Final = "sys/kernel/random/boot_id"
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]+")


@dataclass(frozen=True, slots=True)
class Owner:
    """A driver's name, taken apart. It is written "host/boot/pid/started/random"."""

    host: str
    boot: str  # the machine's boot, and the namespace in which the process has its number
    pid: int
    started: int  # clock ticks since boot
    random: str  # distinguishes the drivers of one process

    def __str__(self) -> str:
        return f"{self.host}/{self.boot}/{self.pid}/{self.started}/{self.random}"

    @property
    def text(self) -> str:
        """The owner in words."""
        return f"process {self.pid} on {self.host}"


def parse(text: str) -> Owner | None:
    """The owner of that name; None for a name of another form."""
    parts = text.split("/")
    if len(parts) != 5 or not all(parts) or not (parts[2].isdecimal() and parts[3].isdecimal()):
        return None
    return Owner(parts[0], parts[1], int(parts[2]), int(parts[3]), parts[4])


def owner_words(text: str) -> str:
    """Who that is, in words."""
    owner = parse(text)
    if owner is None:
        return f'"{text}"'
    return f"the daemon ({owner.text})" if ThisMachine().is_daemon(owner) else owner.text


def has_ended(text: str) -> bool:
    """Whether that is a driver of this machine whose process has ended for sure."""
    return bool(text) and ThisMachine().is_gone(text)


class ThisMachine:
    """Names drivers in this process, and knows whether those of this machine are gone for sure."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._files = ProcFs(proc)

    def new_owner(self) -> Owner:
        """A name for one more driver in this process."""
        stat = self._files.stat(os.getpid())
        return Owner(
            host=_PLAIN.sub("-", os.uname().nodename) or "unknown",
            boot=self._boot() or f"unknown-{secrets.token_hex(8)}",
            pid=os.getpid(),
            started=stat.started_ticks if stat is not None else 0,
            random=secrets.token_hex(4),
        )

    def is_gone(self, text: str) -> bool:
        """Whether that driver's process has ended for sure. What cannot be seen from here may be alive."""
        owner = parse(text)
        if owner is None or not owner.started or owner.boot != self._boot():
            return False
        try:
            os.kill(owner.pid, 0)
        except ProcessLookupError:
            return True
        except (OSError, OverflowError):
            pass  # it is there, and another process's
        stat = self._files.stat(owner.pid)
        return stat is not None and stat.started_ticks != owner.started

    def driver_of(self, record: RestartRecord) -> str:
        """The process that drives the record, in words; "" if it is this one, has ended for sure, or there is none."""
        name = record.lease.owner
        owner = parse(name)
        is_own = owner is not None and (owner.boot, owner.pid) == (self._boot(), os.getpid())
        return "" if not name or is_own or self.is_gone(name) else owner_words(name)

    def is_daemon(self, owner: Owner) -> bool:
        """Whether that driver's process is seen to be a `tpuwatch run` of this machine."""
        if owner.boot != self._boot():
            return False
        words = [os.path.basename(word) for word in self._files.arguments(owner.pid)]  # noqa: PTH119 (no paths)
        return ("tpuwatch", "run") in itertools.pairwise(words)

    def _boot(self) -> str:
        """This boot and this namespace of processes: in both of them a number means the same. "" if not known."""
        boot = self._files.read(_BOOT_ID, 64).decode("ascii", "replace").strip()
        try:
            space = os.readlink(self._proc / "self/ns/pid")  # noqa: PTH115 (the text, which is no path)
        except OSError:
            return ""
        return f"{boot}.{_PLAIN.sub('', space)}" if boot else ""


class LeaseWatch:
    """How long the leases of others hold yet, on this machine's monotonic clock. Used from one thread."""

    def __init__(self, clock: Clock, is_gone: Callable[[str], bool]) -> None:
        self._clock = clock
        self._is_gone = is_gone
        self._seen: dict[Target, tuple[int, float]] = {}  # the version, and when it was first seen

    def remaining(self, stored: Stored) -> float:
        """Seconds until the record may be taken, if its version stays; 0 when it may be taken now."""
        target, lease = stored.record.target, stored.record.lease
        if not lease.owner or self._is_gone(lease.owner):
            self._seen.pop(target, None)
            return 0.0
        now = self._clock.monotonic()
        version, since = self._seen.get(target, (None, now))
        if version != stored.version:
            since = now
            self._seen[target] = (stored.version, since)
        return max(0.0, lease.seconds - (now - since))
