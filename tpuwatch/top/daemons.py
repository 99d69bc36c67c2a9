"""The daemons that are shown, each asked in a thread of its own: one that hangs stalls neither keys nor others."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import TpuwatchError
from tpuwatch.model import (
    DaemonDocument,
    FindingsDocument,
    LaunchesDocument,
    NodesDocument,
    RestartsDocument,
    StatusDocument,
)
from tpuwatch.top.rows import Row, rows_of
from tpuwatch.web import MAX_NODES, ask_daemon

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpuwatch.core import Clock
    from tpuwatch.web import DaemonAddress

_LAUNCHES: Final = 20
_RESTARTS: Final = 50  # nodes
_SHARE: Final = 0.1  # of the time for which a daemon may be kept busy by the questions from here


@dataclass(frozen=True, slots=True)
class Reading:
    """What is known of one daemon."""

    address: str
    documents: DaemonDocument | None = None  # of its latest answer
    rows: Sequence[Row] = ()  # of the nodes in it
    answered: float | None = None  # when that came, in monotonic seconds
    error: str = ""  # why there is none since then; empty: there is


def read_daemon(daemon: DaemonAddress, clock: Clock) -> Reading:
    """One answer. Raises TpuwatchError where there is none, or none of this version."""
    documents = DaemonDocument(
        address=str(daemon),
        status=ask_daemon(daemon, "status", StatusDocument),
        findings=ask_daemon(daemon, "findings", FindingsDocument).findings,
        launches=ask_daemon(daemon, "launches", LaunchesDocument, f"?limit={_LAUNCHES}").launches,
        nodes=ask_daemon(daemon, "nodes", NodesDocument, f"?limit={MAX_NODES}"),
        restarts=ask_daemon(daemon, "restarts", RestartsDocument, f"?limit={_RESTARTS}"),
    )
    return Reading(str(daemon), documents, rows_of(documents), clock.monotonic())


class WatchedDaemon:
    """A daemon that is asked again and again."""

    def __init__(self, daemon: DaemonAddress, interval: float, clock: Clock) -> None:
        """`interval`: seconds between questions. Where answering takes long, they are further apart."""
        self.reading = Reading(str(daemon))
        self._daemon = daemon
        self._interval = interval
        self._clock = clock
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"top {daemon}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ask no more; an answer that is waited for is not."""
        self._ended.set()

    def turn(self) -> float:
        """Ask once; returns the seconds until the next time."""
        began = self._clock.monotonic()
        try:
            self.reading = read_daemon(self._daemon, self._clock)
        except TpuwatchError as error:
            self.reading = replace(self.reading, error=str(error))
            return self._interval
        return max(self._interval, (self._clock.monotonic() - began) / _SHARE)

    def _run(self) -> None:
        while not self._ended.wait(self.turn()):
            pass
