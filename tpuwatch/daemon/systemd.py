"""Telling systemd how the daemon is (sd_notify), and feeding its watchdog by progress alone.

Without systemd (no NOTIFY_SOCKET) everything here does nothing. Nothing here raises because systemd cannot be reached.
"""

from __future__ import annotations

import logging
import socket
from typing import TYPE_CHECKING

from tpuwatch.core import printable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.core import Clock

_log = logging.getLogger(__name__)

_STATUS_CHARS = 200  # what `systemctl status` shows in a line or two


class SystemdNotifier:
    """Sends states to the socket that systemd names in NOTIFY_SOCKET: a path, or an abstract name (`@…`)."""

    def __init__(self, address: str | None, clock: Clock) -> None:
        """`clock.monotonic` must be the machine's own (CLOCK_MONOTONIC) where systemd listens."""
        self._clock = clock
        self._address = _socket_address(address) if address else None
        self._reachable = True

    def ready(self, status: str) -> None:
        """The daemon works; also ends a reload."""
        self._send("READY=1", _status(status))

    def status(self, status: str) -> None:
        """One sentence for `systemctl status`."""
        self._send(_status(status))

    def reloading(self) -> None:
        """The configuration is being read again; `ready` must follow."""
        self._send("RELOADING=1", f"MONOTONIC_USEC={int(self._clock.monotonic() * 1_000_000)}")

    def stopping(self) -> None:
        """The daemon shuts down."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Feed the watchdog."""
        self._send("WATCHDOG=1")

    def _send(self, *assignments: str) -> None:
        if self._address is None:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.setblocking(False)
                connection.sendto("\n".join(assignments).encode(), self._address)
        except OSError as error:
            if self._reachable:  # log it once, not at every ping
                _log.warning("Cannot reach systemd at its notify socket: %s", error)
            self._reachable = False
        else:
            self._reachable = True


class Watchdog:
    """Knows when each loop last made progress, and pings systemd only while all of them do.

    A loop that has stalled stops the pings, so that systemd restarts the daemon. Each loop has its own limit for one
    turn, and all of it at first.
    """

    def __init__(
        self, notifier: SystemdNotifier, clock: Clock, *, limits: Mapping[str, float], timeout: float | None
    ) -> None:
        """`limits`: seconds that each loop may go without progress. `timeout`: systemd's, in seconds, or None."""
        self._notifier = notifier
        self._clock = clock
        self._limits = dict(limits)
        self._progress = dict.fromkeys(limits, clock.monotonic())
        # A quarter: a ping that is lost, or a loop that recovers, has another chance before the time is over.
        self._interval = None if timeout is None else timeout / 4
        self._pinged = float("-inf")

    def watch(self, limits: Mapping[str, float]) -> None:
        """From now on these are the loops and their limits; those that are new have all of their time before them."""
        now = self._clock.monotonic()
        self._progress = {loop: self._progress.get(loop, now) for loop in limits}
        self._limits = dict(limits)

    def progress(self, loop: str) -> None:
        """A loop has finished a turn. May be called from the loop's own thread."""
        if loop not in self._limits:
            raise KeyError(loop)
        self._progress[loop] = self._clock.monotonic()

    def stalled(self) -> list[str]:
        """The loops that have made no progress for longer than they may."""
        now = self._clock.monotonic()
        return [loop for loop, limit in self._limits.items() if now - self._progress[loop] > limit]

    def step(self) -> float | None:
        """Ping if it is time and nothing has stalled. Returns the seconds until the next call is due; None: never."""
        if self._interval is None:
            return None
        now = self._clock.monotonic()
        due = self._pinged + self._interval
        if now < due:
            return due - now
        stalled = self.stalled()
        if stalled:
            _log.error("No word to systemd's watchdog: no progress in %s", ", ".join(stalled))
        else:
            self._notifier.alive()
        self._pinged = now
        return self._interval


def watchdog_timeout(environment: Mapping[str, str], pid: int) -> float | None:
    """Seconds after which systemd restarts the process `pid` without a ping; None when it has no watchdog for it."""
    microseconds, owner = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", str(pid))
    if owner != str(pid) or not (microseconds.isascii() and microseconds.isdecimal()) or int(microseconds) == 0:
        return None
    return int(microseconds) / 1_000_000


def _socket_address(address: str) -> str | None:
    if address.startswith("/"):
        return address
    if address.startswith("@"):
        return "\0" + address[1:]
    _log.warning("NOTIFY_SOCKET=%s is no Unix socket; systemd is not notified", address)
    return None


def _status(status: str) -> str:
    """A status as one line: a line break would begin another assignment."""
    return "STATUS=" + printable(status, _STATUS_CHARS)
