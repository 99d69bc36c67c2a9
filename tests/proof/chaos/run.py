"""The chaos itself: write, kill, start again, and at the end compare."""

from __future__ import annotations

import re
import signal
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING

from tests.e2e.daemon_process import DaemonProcess, get
from tests.proof.chaos.victim import Victim
from tests.proof.chaos.writer import RULES, Writer
from tpuwatch.model.causes import Cause
from tpuwatch.store import StoreReader

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HISTORY_EVENTS = 6000  # more than one turn of the daemon takes
REAL_SHARE = 0.25  # of the starts that are the command as a user starts it; the others are forked, which is sooner done
MOMENT_SECONDS = 5.0  # a moment to kill that does not come is given up
END_SECONDS = 60.0
FIRST_SECONDS = 0.8  # of the longest life during the first run; each next one may be longer
LONGER = 1.3
PACE_SECONDS = 0.003  # between two things that are written, on the average
_COUNTED = re.compile(r"^tpuwatch_(?:backlog_)?events_total(?:\{.*\})? (\S+)$", re.MULTILINE)
_NUMBER = re.compile(r"CHAOS-(?:RECORD|LINE|REQUEST) (\d+) ")


@dataclass
class Verdict:
    """What came of it."""

    summary: str
    faults: list[str] = field(default_factory=list)


class Chaos:
    """One run. The same seed writes the same things and picks the same moments, as far as the machine's time allows."""

    def __init__(self, root: Path, *, kills: int, seed: int, say: Callable[[str], None] = lambda _: None) -> None:
        self._root = root
        self._kills = kills
        self._seed = seed
        self._say = say
        # Two, so that the same things are written whatever the moments are.
        self._random, self._written = Random(f"kill {seed}"), Random(f"write {seed}")
        self._state = root / "state"
        self._faults: list[str] = []
        self._moments: Counter[str] = Counter()

    def run(self) -> Verdict:
        """Do it all; takes about a second per kill."""
        started = time.monotonic()
        self._writer = Writer(
            self._root,
            self._written,
            lambda path: self._victim.is_read(path, MOMENT_SECONDS),
            lambda path: self._victim.read_bytes(path),
        )
        self._victim = Victim(self._configure(), self._state, self._root / "daemon.log")
        try:
            self._writer.history(HISTORY_EVENTS)
            self._historic = self._writer.events
            self._begin()
            while sum(self._moments.values()) < self._kills and not self._faults:
                self._write_for(self._random.expovariate(1 / 0.02))  # while no daemon runs
                self._start_and_kill()
            self._end()
            self._compare()
        finally:
            self._victim.close()
            self._writer.close()
        if self._faults:
            self._faults.append(
                f"Again: python -m tests.proof.chaos --kills {self._kills} --seed {self._seed} --keep DIR"
            )
        return Verdict(self._summary(time.monotonic() - started), self._faults)

    def _configure(self) -> Path:
        daemon = DaemonProcess(self._root)
        (daemon.rules / "chaos.toml").write_text(RULES)
        daemon.configure(poll_seconds=0.2, job_paths=[str(daemon.jobs / "*.log*")])
        return daemon.config

    # -- killing

    def _begin(self) -> None:
        """Kill it during its very first run too, while it reads history; nothing is written until that has begun.

        The lives grow longer: on a machine that is too busy, none of the first ones is long enough for anything.
        """
        longest = FIRST_SECONDS
        while not self._victim.first_run_over() and not self._faults:
            self._victim.start(forked=self._random.random() > REAL_SHARE)
            self._wait_for(lambda: False, self._random.uniform(0.05, longest))
            self._kill("history")
            longest *= LONGER

    def _start_and_kill(self) -> None:
        self._victim.start(forked=self._random.random() > REAL_SHARE)
        moments = (self._at_start, self._after_bytes, self._after_commits, self._after_a_while, self._in_a_commit)
        moment = self._random.choice(moments)
        moment()
        warning = self._random.choice((None, None, None, None, signal.SIGTERM, signal.SIGHUP))
        if warning is not None and moment not in (self._at_start, self._in_a_commit):
            self._victim.signal(warning)
            self._write_for(self._random.uniform(0, 0.04))
        self._kill(moment.__name__.strip("_").replace("_", " "))

    def _at_start(self) -> None:
        self._wait_for(lambda: False, self._random.uniform(0, 0.5))

    def _after_bytes(self) -> None:
        wanted = self._writer.bytes + self._random.randint(1, 40_000)
        self._write_until(lambda: self._writer.bytes >= wanted, MOMENT_SECONDS)

    def _after_commits(self) -> None:
        marks = {self._victim.commits_mark()}
        wanted = 1 + self._random.randint(1, 12)

        def seen() -> bool:
            marks.add(self._victim.commits_mark())
            return len(marks) >= wanted

        self._write_until(seen, MOMENT_SECONDS)

    def _after_a_while(self) -> None:
        self._write_for(self._random.uniform(0.1, 1.2))

    def _in_a_commit(self) -> None:
        """The very moment at which the store's file is written to; looked for without a pause."""
        self._after_commits()
        before, deadline = self._victim.commits_mark(), time.monotonic() + MOMENT_SECONDS / 10
        self._writer.flush()
        while self._victim.commits_mark() == before and time.monotonic() < deadline:
            pass

    def _kill(self, moment: str) -> None:
        self._victim.signal(signal.SIGKILL)
        status = self._victim.wait()
        if status not in (-signal.SIGKILL, 0, -signal.SIGTERM, -signal.SIGHUP):
            self._faults.append(f"The daemon ended by itself with status {status}; see daemon.log.")
        self._moments[moment] += 1
        if sum(self._moments.values()) % 50 == 0:
            self._say(f"{sum(self._moments.values())} kills, {self._writer.events} events")

    # -- writing

    def _write_for(self, seconds: float) -> None:
        self._write_until(lambda: False, seconds)

    def _write_until(self, enough: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline and not enough():
            self._writer.step()
            time.sleep(self._random.expovariate(1 / PACE_SECONDS))

    def _wait_for(self, done: Callable[[], bool], seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while not done():
            if time.monotonic() > deadline:
                return False
            time.sleep(PACE_SECONDS)
        return True

    # -- the end

    def _end(self) -> None:
        """Let the daemon read all that is left, and end it in order."""
        if self._faults:
            return
        self._writer.flush()
        serves = self._state / "http.address"
        serves.unlink(missing_ok=True)  # of one that was killed
        self._victim.start(forked=False)
        if not self._wait_for(lambda: serves.exists() and not self._unread(), END_SECONDS):
            self._faults += [] if serves.exists() else [f"The daemon does not serve within {END_SECONDS:.0f} s."]
            self._faults += [f"Not read to its end within {END_SECONDS:.0f} s: {line}" for line in self._unread()]
        if not self._faults:
            self._compare_metrics(serves.read_text().strip())
        self._victim.signal(signal.SIGTERM)
        if (status := self._victim.wait()) != 0:
            self._faults.append(f"The daemon ended with status {status} on SIGTERM.")

    def _unread(self) -> list[str]:
        """The files whose stored offset is not their end."""
        offsets = self._victim.offsets() if self._victim.first_run_over() else {}
        unread = []
        for path in sorted((*self._writer.logs.glob("tpu_driver.*"), *self._writer.jobs.glob("*.log*"))):
            entry = path.stat()
            offset = offsets.get((entry.st_dev, entry.st_ino), 0)
            if offset != entry.st_size and entry.st_size:
                unread.append(f"{path.name}: {offset} of {entry.st_size} bytes")
        return unread

    def _compare(self) -> None:
        """Every event once, none that nobody wrote, history only what stood there before.

        Of repeats the numbers are not known, but how many there are.
        """
        reader = StoreReader.open(self._state)
        found: dict[int, list[tuple[str, int, bool]]] = {}
        repeats = lacking = 0
        for event in reader.events(after_id=0, limit=10_000_000):
            if event.cause is Cause.TUNE_CHANGE:
                continue  # what it decides on what it has read
            repeats += event.repeats
            match = _NUMBER.search(event.text)
            if match is None:
                self._faults.append(
                    f"An event that nobody wrote: {event.text[:100]!r} in {event.file} at {event.offset}"
                )
                continue
            found.setdefault(int(match[1]), []).append((event.file.rpartition("/")[2], event.offset, event.history))
        for number in range(1, self._writer.events + 1):
            times = found.pop(number, [])
            lacking += not times
            if len(times) > 1:
                self._faults.append(f"Event {number} is there {len(times)} times: {times}")
            elif times and times[0][2] != (number <= self._historic):
                self._faults.append(f"Event {number} is wrongly {'history' if times[0][2] else 'live'}: {times[0]}")
        if lacking != repeats:
            self._faults.append(f"{lacking} events are not there by themselves, but {repeats} repeats")
        self._compare_totals(reader)
        self._faults += [f"Event {number} was never written: {times}" for number, times in found.items()]
        launches = reader.launches(limit=100_000)
        if len(launches) != self._writer.launched:
            self._faults.append(f"{len(launches)} launches are there, {self._writer.launched} were written")
        if kept := sorted(path.name for path in self._state.glob("store.db.*")):
            self._faults.append(f"A store was set aside: {kept}")

    def _compare_totals(self, reader: StoreReader) -> None:
        """The counters that are stored have counted each event."""
        totals = reader.totals()
        counted = sum(number for (series, _), number in totals.items() if series in ("events", "backlog_events"))
        if counted != self._writer.events:
            self._faults.append(f"The totals count {counted} events of {self._writer.events}")

    def _compare_metrics(self, address: str) -> None:
        """What is exported has counted each event; what is stored is counted a moment later."""
        counted = 0

        def is_right() -> bool:
            nonlocal counted
            values = _COUNTED.findall(get(address, "/metrics")[1])
            counted = round(sum(map(float, values)))
            return counted == self._writer.events

        if not self._wait_for(is_right, MOMENT_SECONDS):
            self._faults.append(f"The metrics count {counted} events of {self._writer.events}")

    def _summary(self, seconds: float) -> str:
        kills, writer = sum(self._moments.values()), self._writer
        moments = ", ".join(f"{count} {moment}" for moment, count in sorted(self._moments.items()))
        done = ", ".join(f"{count} {name}" for name, count in sorted(writer.done.items()))
        verdict = "FAILED" if self._faults else "each event exactly once"
        return (
            f"chaos: {kills} kills ({moments}); {writer.events} events and {writer.launched} launches in "
            f"{writer.bytes} bytes ({done}); {seconds:.0f} s, seed {self._seed}: {verdict}"
        )
