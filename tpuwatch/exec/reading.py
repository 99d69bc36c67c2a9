"""What the watcher does: reads the command's output and its logs by the rules, and tells what they say.

Nothing is loaded before there is something to read: a command that says nothing costs nothing.
"""

from __future__ import annotations

import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch import configfile
from tpuwatch.diagnose import fold, seen
from tpuwatch.errors import ConfigError
from tpuwatch.exec.launchlogs import LaunchLogs
from tpuwatch.launches.tracker import LaunchTracker, Origin
from tpuwatch.logs.parser import LogParser, StreamKind
from tpuwatch.model import Outcome
from tpuwatch.tune.model import Bounds
from tpuwatch.tune.visibility import LOG_DIR

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.diagnose import Seen
    from tpuwatch.exec.watcher import Counters, Job
    from tpuwatch.logs.files import LogFile
    from tpuwatch.logs.parser import Match
    from tpuwatch.logs.scan import Scanner
    from tpuwatch.model import Launch

POLL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16)  # between looks at what is quiet, for ever longer
CHUNK_BYTES = 1 << 18
_OUTPUT_MATCHES = 10_000  # in the command's output that its launches learn of
_BLOCK_BYTES = 32 << 20  # of a copy that are given back at once: the writer waits meanwhile
_PUNCH = 0x03  # fallocate's FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE


def read(job: Job, counters: Counters, over: Callable[[float], bool]) -> dict[str, Any]:
    """Read until the command has ended, and then to the end of all; what was found, fit for JSON.

    `over`: wait for the command's end, so many seconds at most; whether it has ended.
    """
    from tpuwatch.export.jsonable import diagnosis

    reader = Reader(job, counters, over)
    findings = fold(reader.seen())
    launches = reader.launches()
    document = diagnosis(findings, launches)
    return {**document, "records": [asdict(launch) for launch in launches]}


class Reader:
    """Reads all texts in turns of one chunk."""

    def __init__(self, job: Job, counters: Counters, over: Callable[[float], bool]) -> None:
        self._job = job
        self._counters = counters
        self._over = over
        self._logs = LaunchLogs(job.environ.get(LOG_DIR, ""), job.launch, job.started)
        self._tracker = LaunchTracker()
        self._scanner: Scanner | None = None
        self._texts = [_Text(text.file, text.name, text.start) for text in job.texts]
        self._output: list[tuple[Match, _Text, float]] = []  # recognised in the command's output

    def seen(self) -> Iterator[Seen]:
        """All that the rules recognise, as it comes."""
        ended, quiet = False, 0
        while True:
            busy = False
            last = ended and self._counters.logs is None
            for file, descriptor in self._logs.look(whatever=last):
                self._texts.append(_Text(descriptor, file.path, 0, file))
                busy = True
            if last:
                self._counters.tell_logs(len(self._texts) - len(self._job.texts))
            for number, text in enumerate(self._texts):
                matches = text.read(self._parser, ended=ended)
                busy |= text.moved
                if text.moved:
                    self._done(number, text)
                yield from (self._told(match, text) for match in matches)
            if ended and not busy:
                break
            quiet = 0 if busy else min(quiet + 1, len(POLL_SECONDS))
            ended = self._over(POLL_SECONDS[quiet - 1] if quiet else 0.0)
        for text in self._texts:
            yield from (self._told(match, text) for match in text.finish())

    def launches(self) -> list[Launch]:
        """What is known of the command's launches, the oldest first. It has ended: none of them is under way.

        What its output says is put to them last, when all are known: of one launch alone it is that one's.
        """
        known = self._tracker.latest()
        only = known[0].pid if len(known) == 1 else None
        for match, text, now in self._output:
            self._tracker.hear(match, Origin(text.pid or only, output=True), now)
        launches = self._tracker.latest()
        for launch in launches:
            if launch.outcome in (Outcome.STARTING, Outcome.SILENT):
                launch.outcome = Outcome.KILLED
        return launches

    def _done(self, number: int, text: _Text) -> None:
        self._counters.advance()
        if number < len(self._job.texts) and self._job.texts[number].copy:
            self._counters.take(number, text.position)
            text.give_back()

    def _told(self, match: Match, text: _Text) -> Seen:
        now = time.time()
        if text.log is not None:
            self._tracker.hear(match, Origin(text.pid, text.log.user, text.log.host), now)
        elif len(self._output) < _OUTPUT_MATCHES:
            if match.rule.mark == "banner":
                text.pid = text.pid or match.details.get("pid")
            self._output.append((match, text, now))
        return seen(match, text.name, now)

    def _parser(self, text: _Text) -> LogParser:
        if self._scanner is None:
            self._scanner = load_scanner(self._job)
        kind = StreamKind.TEXT if text.log is None else StreamKind.LIBTPU
        return LogParser(self._scanner, kind, now=time.time(), count_lines=text.log is not None)


class _Text:
    """One text that grows. A file that is cut off is begun again."""

    def __init__(self, descriptor: int, name: str, start: int, log: LogFile | None = None) -> None:
        self.name = name
        self.log = log  # what its name tells, if it is one of libtpu's
        self.pid = None if log is None else log.pid
        self.position = start
        self.moved = False  # whether the last call of read() came further
        self._descriptor = descriptor
        self._parser: LogParser | None = None
        self._given_back = 0

    def read(self, new_parser: Callable[[_Text], LogParser], *, ended: bool) -> list[Match]:
        """Read one chunk. `ended`: what is there now is all that is of interest."""
        size = os.fstat(self._descriptor).st_size
        matches = self._begin_again() if size < self.position else []
        data = os.pread(self._descriptor, CHUNK_BYTES, self.position) if size > self.position else b""
        self.moved = bool(data)
        if data:
            self._parser = self._parser or new_parser(self)
            self.position += len(data)
            return matches + self._parser.feed(data)
        if self._parser is not None and self._parser.open and not ended:
            return matches + self._parser.settle()
        return matches

    def finish(self) -> list[Match]:
        """It has ended: the matches that were held back."""
        return [] if self._parser is None else self._parser.finish()

    def give_back(self) -> None:
        """Let the file system have the space of what was read."""
        upto = self.position - self.position % _BLOCK_BYTES
        if upto > self._given_back and _punch(self._descriptor, self._given_back, upto - self._given_back):
            self._given_back = upto

    def _begin_again(self) -> list[Match]:
        matches = self.finish()
        self._parser, self.position = None, 0
        return matches


def _punch(descriptor: int, offset: int, size: int) -> bool:
    """Free a part of a file's space; it reads as zeros from then on. False where the file system cannot."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_int(descriptor), ctypes.c_int(_PUNCH), ctypes.c_int64(offset), ctypes.c_int64(size))
    return bool(library.fallocate64(*arguments) == 0)


def load_scanner(job: Job) -> Scanner:
    """The rules, with those of the configuration."""
    from tpuwatch.logs.catalogue import load_catalogue, with_threshold
    from tpuwatch.logs.scan import Scanner
    from tpuwatch.model import Cause

    directories, slow_seconds = _settings(job)
    return Scanner(with_threshold(load_catalogue(directories), Cause.SLOW_INIT, "init_seconds", slow_seconds))


def _settings(job: Job) -> tuple[list[Path], float]:
    """[logs] rules and slow_init_seconds, as far as they can be used. To load a whole configuration takes longer than
    to read 100 MB of output; `tpuwatch config check` says what is wrong with one.
    """
    try:
        path = configfile.find(job.config, job.environ)
        logs = configfile.read(path).get("logs", {}) if path is not None else {}
        directories, seconds = logs.get("rules", []), logs.get("slow_init_seconds", Bounds().init_seconds)
        return [Path(directory) for directory in directories], float(seconds)
    except (ConfigError, ValueError, TypeError, AttributeError):
        return [], Bounds().init_seconds
