"""The pace of loops over restarts of the daemon, and of earlier launches of the same workload: kept in the store."""

from __future__ import annotations

import hashlib
import logging
import re
from typing import TYPE_CHECKING, Final

from tpuwatch.core import StoreError
from tpuwatch.model import PaceRecord, ProgressSource
from tpuwatch.progress.pace import LaunchKey, Pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from tpuwatch.core import Clock
    from tpuwatch.progress.tracker import Beginning, LoopPace

    class PaceStore(Protocol):
        """The part of the store that keeps paces."""

        def paces(self, workload: str, limit: int) -> list[PaceRecord]:
            """Return those of a workload, the newest first."""

        def save_paces(self, records: list[PaceRecord]) -> None:
            """Store them, all or none."""


SAVE_SECONDS: Final = 300.0  # between two times that all are stored; a slow-down that begins or ends is stored at once
EARLIER: Final = 4  # launches of the workload that are compared with
GOES_ON_SECONDS: Final = 86_400.0  # after its latest step, in which the same launch goes on
GOES_ON_STEPS: Final = 10  # that its next word may be behind
MAX_RECALLS: Final = 32  # in one second: a user can start any number of loops, and each is a query
_MAX_STEP: Final = 2**62
_NUMBER: Final = re.compile(r"\d+")

_log = logging.getLogger(__name__)


class PaceMemory:
    """Finds the pace of loops again, and keeps it. Not thread-safe."""

    def __init__(self, store: PaceStore, *, clock: Clock, boot_id: str, command: Callable[[int], str]) -> None:
        """`command` returns the command line of a process."""
        self._store = store
        self._clock = clock
        self._boot_id = boot_id
        self._command = command
        self._due = clock.monotonic() + SAVE_SECONDS
        self._saved: dict[int, tuple[int, float | None]] = {}  # by launch: the step, and the slow-down that was told
        self._problem = ""
        self._recalls, self._recalls_since = 0, clock.monotonic()

    def recall(self, begun: Beginning, slower: float) -> Pace:
        """The pace that a loop begins with: its own from before, or a new one beside those of earlier launches."""
        workload, run = self._workload(begun), self._run(begun)
        records = self._stored(workload)
        own = next((one for one in records if _goes_on(one, run, begun)), None)
        launch = int(_digest(f"{workload}\0{run}\0{begun.at!r}")[:12], 16) if own is None else own.launch
        earlier = [one.points for one in records if one is not own][:EARLIER]
        pace = Pace(slower, earlier, key=LaunchKey(launch, workload, run))
        if own is not None and not pace.restore(dict(own.facts), own.points):
            _log.warning("The stored pace of %s cannot be read; its baseline is measured again.", begun.name)
        return pace

    def keep(self, loops: Iterable[LoopPace], *, all_of_them: bool = False) -> None:
        """Store the loops that changed, every few minutes or when a slow-down begins or ends."""
        now = self._clock.monotonic()
        due = all_of_them or now >= self._due
        if due:
            self._due = now + SAVE_SECONDS
        records: list[PaceRecord] = []
        marks: dict[int, tuple[int, float | None]] = {}
        for pace, step, at in loops:
            key, slow = pace.key, pace.slowdown
            if key is None or pace.baseline_seconds is None:
                continue
            mark = (step, slow.told if slow is not None else None)
            before = self._saved.get(key.launch, (-1, None))
            if (due and mark != before) or mark[1] != before[1]:
                step = min(step, _MAX_STEP)
                points = tuple(one for one in pace.points if one.step <= _MAX_STEP)
                records.append(PaceRecord(key.launch, key.workload, key.run, step, at, pace.state(), points))
            marks[key.launch] = mark
        if not records:
            return
        try:
            self._store.save_paces(records)
        except StoreError as error:
            self._report(error)
            return
        self._problem = ""
        stored = {one.launch for one in records}
        self._saved = {
            launch: mark if launch in stored else self._saved.get(launch, (-1, None)) for launch, mark in marks.items()
        }

    def _stored(self, workload: str) -> list[PaceRecord]:
        now = self._clock.monotonic()
        if now - self._recalls_since >= 1.0:
            self._recalls_since, self._recalls = now, 0
        self._recalls += 1
        if self._recalls > MAX_RECALLS:
            return []
        try:
            return self._store.paces(workload, EARLIER + 1)
        except StoreError as error:
            self._report(error)
            return []

    def _report(self, error: StoreError) -> None:
        if str(error) != self._problem:
            self._problem = str(error)
            _log.warning("The pace of training loops is not kept over a restart: %s", error)

    def _workload(self, begun: Beginning) -> str:
        """What launches of one workload share: the output without its numbers, or user, name and command."""
        if begun.source is ProgressSource.OUTPUT:
            return _digest(f"output\0{_NUMBER.sub('0', begun.name)}")
        command = _NUMBER.sub("0", self._command(begun.pid)) if begun.pid is not None else ""
        return _digest(f"heartbeat\0{begun.user}\0{begun.name}\0{command}")

    def _run(self, begun: Beginning) -> str:
        """What shows a later daemon that the launch is the same: its process, and the output."""
        process = f"{self._boot_id}:{begun.pid}:{begun.process}" if begun.process is not None else ""
        return _digest(f"{process}\0{begun.name}")


def _digest(text: str) -> str:
    """A short name of a text of any length, which may hold what nobody else should read."""
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()[:32]


def _goes_on(record: PaceRecord, run: str, begun: Beginning) -> bool:
    return (
        record.run == run and begun.step >= record.step - GOES_ON_STEPS and abs(begun.at - record.at) < GOES_ON_SECONDS
    )
