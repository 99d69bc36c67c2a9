"""The watcher's work: it matches the command's output and libtpu's logs of it against the rules.

The rules are loaded when there is something to read: a silent command costs nothing. When the command has ended,
somebody waits: of the output that was not read by then the end comes first, which has the failure most often, and then
as much before it as there is time for.
"""

from __future__ import annotations

import os
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.config import usable_config
from tpuwatch.core import SystemClock
from tpuwatch.diagnose import RecognisedRecord, fold
from tpuwatch.ingest import DoubleReports
from tpuwatch.launches import LaunchTracker, Origin, RecordedFinding, shows_launch
from tpuwatch.libtpu import LOG_DIR
from tpuwatch.logs import Discovery, LogParser, RefusedError, StreamKind
from tpuwatch.model import LAUNCH_VARIABLE, Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tpuwatch.exec.watcher_job import WatcherCounters, WatcherJob
    from tpuwatch.logs import LogFile, Match, Scanner
    from tpuwatch.model import Launch


POLL_SECONDS = (0.01, 0.02, 0.04, 0.08, 0.16)  # between looks at what is quiet, for ever longer
CHUNK_BYTES = 1 << 18
BLOCK_BYTES = 1 << 20  # that are read at once, further and further back from the end of the output
END_BYTES = 1 << 16  # of the end of the output, which are read in any case, and then pieces of that size
REST_SECONDS: Final = 0.3  # of processor time, so that a busy machine reads as much, for that
_LINE_BYTES = 1 << 14  # in which a block looks for the beginning of a line
_OUTPUT_MATCHES = 10_000  # in the command's output that are assigned to its launches
_PUNCHED_BYTES = 32 << 20  # of a copy that are given back at once: the writer waits meanwhile
_PUNCH = 0x03  # fallocate's FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE
DEFAULT_DIRECTORY: Final = "/tmp/tpu_logs"  # noqa: S108 (where libtpu writes)
FALLBACK: Final = "/tmp"  # noqa: S108 (where it writes when it cannot write to its directory)
MAX_FILES: Final = 256  # of one command
_SLACK_SECONDS = 2.0  # names have whole seconds
_CLOCK_SECONDS = 0.05  # by which the times of files may lag
_MAX_ENVIRON = 1 << 20


def read(job: WatcherJob, counters: WatcherCounters, over: Callable[[float], bool]) -> dict[str, Any]:
    """Read until the command has ended, and then to the end of all; what was found, fit for JSON.

    `over`: wait for the command's end, so many seconds at most; whether it has ended.
    """
    from tpuwatch.core import encode, like
    from tpuwatch.exec.found import FoundDocument
    from tpuwatch.model import DiagnosisDocument

    reader = Reader(job, counters, over)
    findings = fold(reader.seen(), of_job=True)
    launches = reader.launches()
    found = like(
        FoundDocument,
        DiagnosisDocument.of(findings, launches),
        records=tuple(launches),
        recorded=tuple(map(RecordedFinding.of, findings)),
        unread_bytes=reader.unread,
    )
    return encode(found)


class Reader:
    """Reads all texts in turns of one chunk."""

    def __init__(
        self,
        job: WatcherJob,
        counters: WatcherCounters,
        over: Callable[[float], bool],
        timer: Callable[[], float] = time.thread_time,
    ) -> None:
        """`timer`: seconds, by which the time for the rest of the output is measured."""
        self.unread = 0  # bytes of output for which there was no time
        self._timer = timer
        self._ended = False
        self._job = job
        self._counters = counters
        self._over = over
        self._logs = LaunchLogs(job.environ.get(LOG_DIR, ""), job.launch, job.started)
        self._tracker = LaunchTracker()
        self._reports = DoubleReports()
        self._scanner: Scanner | None = None
        self._texts = [_Text(text.file, text.name, text.start) for text in job.texts]
        self._output: list[tuple[Match, _Text, float]] = []  # recognised in the command's output

    def seen(self) -> Iterator[RecognisedRecord]:
        """All that the rules recognise, in the order in which it is read."""
        ended, quiet = False, 0
        while True:
            busy = False
            last = ended and self._counters.logs is None
            for file, descriptor in self._logs.look(force=last):
                self._texts.append(_Text(descriptor, file.path, 0, file))
                busy = True
            if last:
                self._counters.report_logs(len(self._texts) - len(self._job.texts))
            if self._scanner is None and any(text.behind for text in self._texts):
                self._scanner = load_scanner(self._job)  # meanwhile the command may end
                busy = True
            else:
                for number, text in enumerate(self._texts):
                    if ended and text.log is None:
                        continue
                    matches = text.read(self._parser, ended=ended)
                    busy |= text.moved
                    if text.moved:
                        self._done(number, text)
                    yield from (self._recognised(match, text) for match in matches)
            if ended and not busy:
                break
            quiet = 0 if busy else min(quiet + 1, len(POLL_SECONDS))
            ended = self._over(POLL_SECONDS[quiet - 1] if quiet else 0.0)
        self._read_rest([text for text in self._texts if text.log is None])
        for text in self._texts:
            yield from (self._recognised(match, text) for match in text.finish())

    def _read_rest(self, outputs: list[_Text]) -> None:
        """Read what is left of the output: the end of each text in any case, and before that as much as is in time."""
        self._ended = True
        until = self._timer() + REST_SECONDS

        def in_time() -> bool:
            self._counters.advance()
            return self._timer() < until

        for text in outputs:
            text.read_back(self._parser, END_BYTES, in_time)
        while any(text.behind for text in outputs) and in_time():
            max(outputs, key=lambda text: text.behind).read_back(self._parser, BLOCK_BYTES, in_time)
        self.unread = sum(text.behind + text.missed for text in outputs)

    def launches(self) -> list[Launch]:
        """What is known of the command's launches, the oldest first. It has ended: none of them is under way.

        Its output is assigned to them last, when all are known: of one launch alone it is that one's. Where no log is
        there, and the output shows that there was a launch, that is the command's own.
        """
        logged = {launch.pid for launch in self._tracker.latest()} or {text.pid for text in self._texts if text.pid}
        if not logged and any(shows_launch(match) for match, *_ in self._output):
            logged = {self._job.pid}
            self._tracker.mark("banner", {}, Origin(self._job.pid, output=True), self._job.started)
            self._tracker.mark("init_started", {}, Origin(self._job.pid, output=True), self._job.started)
        only = next(iter(logged)) if len(logged) == 1 else None
        for match, text, now in self._output:
            self._tracker.observe(match, Origin(text.pid or only, output=True), now)
        launches = self._tracker.latest()
        for launch in launches:
            if launch.outcome in (Outcome.STARTING, Outcome.SILENT):
                # A buffer that had no room was there: its launch came up, whether that was printed or not.
                launch.outcome = Outcome.OK if launch.premapped_failures else Outcome.KILLED
        return launches

    def _done(self, number: int, text: _Text) -> None:
        self._counters.advance()
        if number < len(self._job.texts) and self._job.texts[number].copy:
            self._counters.set_read_offset(number, text.position)
            text.give_back()

    def _recognised(self, match: Match, text: _Text) -> RecognisedRecord:
        now = time.time()
        if text.log is not None:
            self._tracker.observe(match, Origin(text.pid, text.log.user, text.log.host), now)
        elif len(self._output) < _OUTPUT_MATCHES:
            if match.rule.mark == "banner":
                text.pid = text.pid or match.details.get("pid")
            self._output.append((match, text, now))
        return self._once(RecognisedRecord.from_match(match, text.name, now))

    def _once(self, record: RecognisedRecord) -> RecognisedRecord:
        """The record; where the same failure was reported in the other way before, by libtpu's log or by the program,
        with that report's key, so that it counts once."""
        first = None if record.event is None else self._reports.first_key(record.event)
        return (
            record if record.event is None or first is None else replace(record, event=replace(record.event, key=first))
        )

    def _parser(self, text: _Text) -> LogParser:
        self._scanner = self._scanner or load_scanner(self._job)
        kind = StreamKind.TEXT if text.log is None else StreamKind.LIBTPU
        return LogParser(self._scanner, kind, now=time.time(), count_lines=text.log is not None)


class _Text:
    """One text that grows. A file that is cut off is read again from its start."""

    def __init__(self, descriptor: int, name: str, start: int, log: LogFile | None = None) -> None:
        self.name = name
        self.log = log  # what its name says, if it is one of libtpu's
        self.pid = None if log is None else log.pid
        self.position = start
        self.moved = False  # whether the last call of read() came further
        self.missed = 0  # bytes within what read_back() was to read, for which there was no time
        self._end: int | None = None  # what is from there on was read back
        self._back: list[list[Match]] = []  # what was found there, the last block first
        self._earlier: list[Match] = []  # what was found before it was truncated at last
        self._descriptor = descriptor
        self._parser: LogParser | None = None
        self._given_back = 0

    def read(self, new_parser: Callable[[_Text], LogParser], *, ended: bool) -> list[Match]:
        """Read one chunk. `ended`: what is there now is all that is of interest."""
        size = os.fstat(self._descriptor).st_size
        matches = self._restart() if size < self.position else []
        data = os.pread(self._descriptor, CHUNK_BYTES, self.position) if size > self.position else b""
        self.moved = bool(data)
        if data:
            self._parser = self._parser or new_parser(self)
            self.position += len(data)
            return matches + self._parser.feed(data)
        if self._parser is not None and self._parser.open and not ended:
            return matches + self._parser.settle()
        return matches

    @property
    def behind(self) -> int:
        """How many bytes there are that were not read, and were not to be."""
        end = os.fstat(self._descriptor).st_size if self._end is None else self._end
        return max(0, end - self.position)

    def read_back(self, new_parser: Callable[[_Text], LogParser], size: int, in_time: Callable[[], bool]) -> None:
        """Read so many bytes of the end, or before what was read of the end, as far as that is `in_time`.

        The matches are kept for finish(). Each block begins with a line, and has a parser of its own.
        """
        if self._end is None:
            self._end = os.fstat(self._descriptor).st_size
            if self._end < self.position:
                self._earlier = self._restart()
        start = max(self.position, self._end - size)
        if start > self.position:
            start += os.pread(self._descriptor, _LINE_BYTES, start).find(b"\n") + 1
        if start == self.position:  # what was read before goes on
            parser = self._parser = self._parser or new_parser(self)
        else:
            parser = new_parser(self)
        matches, at = [], start
        while at < self._end and (at == start or in_time()):
            data = os.pread(self._descriptor, min(END_BYTES, self._end - at), at)
            if not data:  # somebody truncates it
                break
            matches += parser.feed(data)
            at += len(data)
        self.missed += self._end - at
        self._back.append(matches + parser.finish())
        self._end = start

    def finish(self) -> list[Match]:
        """It has ended: the matches that were held back, in the order of the text."""
        own = [] if self._parser is None else self._parser.finish()
        return [*self._earlier, *own, *(match for block in reversed(self._back) for match in block)]

    def give_back(self) -> None:
        """Let the file system have the space of what was read."""
        upto = self.position - self.position % _PUNCHED_BYTES
        if upto > self._given_back and _punch(self._descriptor, self._given_back, upto - self._given_back):
            self._given_back = upto

    def _restart(self) -> list[Match]:
        matches = self.finish()
        self._parser, self.position = None, 0
        return matches


def _punch(descriptor: int, offset: int, size: int) -> bool:
    """Free a part of a file's space; it reads as zeros from then on. False where the file system cannot."""
    import ctypes

    library = ctypes.CDLL(None, use_errno=True)
    arguments = (ctypes.c_int(descriptor), ctypes.c_int(_PUNCH), ctypes.c_int64(offset), ctypes.c_int64(size))
    return bool(library.fallocate64(*arguments) == 0)


def load_scanner(job: WatcherJob) -> Scanner:
    """The rules, with those of the configuration. To load a whole configuration takes longer than to read 100 MB."""
    from tpuwatch.logs import Scanner, for_programs, load_catalogue, with_threshold
    from tpuwatch.model import Cause

    config = usable_config(job.config, job.environ)
    catalogue = for_programs(load_catalogue(config.rules))
    catalogue = with_threshold(catalogue, Cause.SLOW_INIT, "init_seconds", config.slow_init_seconds)
    return Scanner(catalogue)


class LaunchLogs:
    """Finds the files as they appear."""

    def __init__(self, directory: str, launch: str, started: float) -> None:
        """`launch`: the mark in the environment. `started`: seconds since the epoch."""
        paths = dict.fromkeys((os.path.abspath(directory or DEFAULT_DIRECTORY), FALLBACK))  # noqa: PTH100 (as libtpu takes it)
        self._discovery = Discovery(paths, (), clock=SystemClock(), rescan_seconds=0.0, first_run=False)
        self._mark = f"{LAUNCH_VARIABLE}={launch}".encode()
        self._started = started
        self._found = 0

    def look(self, *, force: bool = False) -> Iterator[tuple[LogFile, int]]:
        """The files that have appeared since the last look, each with a descriptor to read it by.

        `force`: read each directory, even one that takes long and was read a moment ago.
        """
        for source, path, *_ in self._discovery.scan(force=force).appeared:
            file = source.describe(path)
            if self._found >= MAX_FILES or (file.started or 0.0) < self._started - _SLACK_SECONDS:
                continue
            try:
                descriptor = source.open(path)
            except (OSError, RefusedError):
                continue
            if self._is_ours(file, os.fstat(descriptor)):
                self._found += 1
                yield file, descriptor
            else:
                os.close(descriptor)

    def _is_ours(self, file: LogFile, entry: os.stat_result) -> bool:
        try:
            with open(f"/proc/{file.pid}/environ", "rb") as environ:
                variables = environ.read(_MAX_ENVIRON).split(b"\0")
        except PermissionError:
            return False  # it lives, and is another user's
        except OSError:
            variables = [b""]
        if variables != [b""]:
            return self._mark in variables
        return entry.st_uid == os.geteuid() and entry.st_mtime >= self._started - _CLOCK_SECONDS
