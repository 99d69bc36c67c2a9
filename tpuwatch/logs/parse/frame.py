"""The format of log lines: headers of glog, absl and TensorFlow, launchers' prefixes, colours, times without a year.

Patterns here are anchored at the start of a line and bounded in length, so each costs constant time per line.
"""

from __future__ import annotations

import json
import re
import time
from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

# Prefixes that launchers, container engines and journald put before each line; they are removed.
_DECORATION = re.compile(
    rb"""(?:\x1b\[[0-9;]{0,16}m){0,3}(?:
      \[\d{1,6},\d{1,6}\]<std(?:err|out)>:\ ?             # mpirun
    | \[(?:rank|worker|task|host|process|default)?[ :_-]?\d{1,6}\]:?\ ? # torchrun: [default0]:
    | \([A-Za-z][\w.,=\ :-]{0,60}pid=\d{1,10}[^)\n]{0,60}\)\ ? # ray, vllm, SkyPilot
    | (?:rank|worker|task|host|process)?[ :_-]?\d{1,6}:\ +(?=\S)  # srun -l, gcloud --worker=all
    | [\w.-]{1,60}[-_]\d{1,6}\ {0,8}\|\ ?                 # docker compose
    | [A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:\d\d\ [\w.-]{1,64}\ [\w./@-]{1,64}(?:\[\d{1,10}\])?:\ ?   # journald, syslog
    | \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:?\d\d)\ [\w.-]{1,64}\ # the same with a time in ISO 8601
      (?:[\w./@-]{1,64}\[\d{1,10}\]|kernel):\ ?
    | \d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\ (?:std(?:err|out)\ [FP]\ )?  # docker, CRI
    | \{"log":"(?=[^\n]*","stream":"std(?:err|out)")      # docker's json-file; what is after the message goes too
    | \[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\]\n]{0,12}\]:?\ ?     # launchers, Airflow
    | \[pod/[\w.-]{1,80}/[\w.-]{1,80}\]\ ?                # kubectl logs --prefix
    | \[[\w.-]{1,60}-w-?\d{1,4}\]:?\ ?                    # a worker's name
    | (?:ERROR|CRITICAL)\ {1,5}\d\d-\d\d\ \d\d:\d\d:\d\d\ \[[^\]\n]{1,80}\]\ ?  # vllm: before each line of a traceback
    | (?:>\ ?){1,4}(?=\S)                                  # quoted mail
    )(?:\x1b\[[0-9;]{0,16}m){0,3}""",
    re.VERBOSE,
)
# What changes from line to line in the prefixes of one process.
_PASSING = re.compile(
    rb"""\x1b\[[0-9;]{0,16}m
    | \{"log":"
    | [A-Z][a-z]{2}\ [ \d]\d\ \d\d:\d\d:\d\d
    | (?:ERROR|CRITICAL)\ +\d\d-\d\d\ \d\d:\d\d:\d\d\ \[[^\]\n]{1,80}\]
    | \[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d[^\s\]]{0,20}\]?:?(?:\ std(?:err|out)\ [FP])?
    | [> ]+""",
    re.VERBOSE,
)
JSON_FILE = b'{"log":"'  # how docker's json-file begins each line
_JSON_FILE_END = re.compile(
    rb"""(?:\\r)?(?:\\n)?","stream":"std(?:err|out)"(?:,"attrs":\{[^\n]{0,4000}\})?,"time":"[\w:.+-]{1,40}"\}\s{0,2}\Z"""
)
_OWN = b"tpuwatch: "  # how each line of `tpuwatch exec` begins, whose report is no new failure
# A logger's own header, which is removed too, but begins a record.
_LOGGER = re.compile(rb"(?:DEBUG|INFO|WARNING) {1,5}\d\d-\d\d \d\d:\d\d:\d\d \[[^\]\n]{1,80}\] ?")
_ANSI = re.compile(rb"\x1b(?:\[[0-9;?]{0,32}[ -/]?[@-~]|\][^\x07\x1b\n]{0,256}(?:\x07|\x1b\\)|[@-Z\\-_])")

# The names of the groups differ because one pattern may hold both.
_GLOG = (
    rb"(?P<sev>[IWEF])(?P<date>\d{4}) (?P<clock>\d\d:\d\d:)(?P<sec>\d{1,10}(?:\.\d{1,9})?)"
    rb" +(?P<tid>\d{1,20}) (?P<src>[^\s:\]]{1,200}:\d{1,7})\] ?"
)
_TF = (
    rb"(?P<tdate>\d{4}-\d\d-\d\d) (?P<tclock>\d\d:\d\d:)(?P<tsec>\d\d(?:\.\d{1,9})?):"
    rb" (?P<tsev>[IWEF]) +(?:(?P<ttid>\d{1,20}) +)?(?P<tsrc>[^\s:\]]{1,200}:\d{1,7})\] ?"
)
LIBTPU_HEADER = re.compile(_GLOG)  # tried first, and alone, in libtpu's own files
TEXT_HEADER = re.compile(_GLOG + rb"|" + _TF)

# In a job's output these begin a new record without a header.
TEXT_BREAK = re.compile(
    rb"Traceback \(most recent call last\)|\*\*\* SIG|\[ *\d{1,9}\.\d{6}\] |\{\""
    rb"|(?:DEBUG|INFO|WARNING|ERROR|CRITICAL|FATAL)[: ]|(?:\[|\| )(?:DEBUG|INFO|WARNING|ERROR|CRITICAL) {0,4}[]|]"
    rb"|[A-Za-z_][\w.]{0,120}(?:Error|Exception|Interrupt|Warning|Exit)\b"
    # A step of training with something measured, and a bar of steps.
    rb"|(?:(?:[Cc]ompleted |[Gg]lobal[_ ]|[Tt]rain(?:ing)?[_ :])?(?:[Ss]tep|[Ee]poch|[Ii]ter(?:ation)?)[ =:#[]{1,3}"
    rb"| ?\d{1,9}/\d{1,9} \[| ?\d{1,3}%\|)(?=[^\n]{0,300}(?:[Ll]oss|[a-z]/s))|\{'(?:eval_|train_)?loss'"
)

_CREATED = re.compile(rb"\ALog file created at: (\d{4})/(\d\d)/(\d\d) ")
_LINE_END = 4  # bytes of the escaped end of a line
_DAY = 86_400.0
_HALF_YEAR = 182 * _DAY


class Header(NamedTuple):
    """The header before a record's message. `date` is MMDD from glog or YYYY-MM-DD from TensorFlow."""

    severity: str
    date: bytes
    clock: bytes
    second: float
    thread: int | None
    source: bytes
    length: int  # bytes of the line before the message, decorations included
    raw: bytes  # the header without decorations: equal in every copy of the record

    def same_report(self, other: Header) -> bool:
        """Whether two records may be lines of one report: libtpu 0.0.23 and older prints one per line."""
        return (
            self.source == other.source
            and self.severity == other.severity
            and self.thread == other.thread
            and self.source != b""
        )


class HeaderPlaces(NamedTuple):
    """Where the parts of a header are in a line: in each line of the same shape."""

    start: int  # without decorations
    stop: int  # of what is equal in every copy of the record
    date: int
    clock: int
    seconds: int
    fraction: int  # the point before it
    digits: int  # of the fraction

    def minute(self, line: bytes) -> int:
        """Month, day, hour and minute of the record, two digits each."""
        month_and_day = line[self.date : self.clock - 1].replace(b"-", b"")[-4:]
        return int(month_and_day + line[self.clock : self.clock + 2] + line[self.clock + 3 : self.clock + 5])


def header_places(line: bytes, pattern: re.Pattern[bytes], decorated: bool) -> HeaderPlaces | None:
    """Where the parts of the line's header are."""
    start = 0
    match = pattern.match(line)
    if match is None and decorated:
        start = decoration_length(line)
        match = pattern.match(line, start) if start else None
    if match is None:
        return None
    group = "" if match.group("sev") is not None else "t"
    seconds, end = match.span(f"{group}sec")
    point = line.find(b".", seconds, end)
    fraction = end if point < 0 else point
    stop = start + len(match.group().rstrip())
    return HeaderPlaces(
        start,
        stop,
        match.start(f"{group}date"),
        match.start(f"{group}clock"),
        seconds,
        fraction,
        max(0, end - fraction - 1),
    )


def parse_header(text: bytes, start: int, pattern: re.Pattern[bytes], decorated: bool) -> Header | None:
    """The header of the line that begins at `start`, or None. `decorated`: launchers' prefixes may precede it."""
    match = pattern.match(text, start)
    if match is None and decorated:
        length = decoration_length(text, start)
        match = pattern.match(text, start + length) if length else None
    if match is None:
        return None
    sev, date, clock, second, thread, source = match.group("sev", "date", "clock", "sec", "tid", "src")
    if sev is None:
        sev, date, clock, second, thread, source = match.group("tsev", "tdate", "tclock", "tsec", "ttid", "tsrc")
    return Header(
        sev.decode(),
        date,
        clock,
        float(second),
        int(thread) if thread else None,
        source,
        match.end() - start,
        match.group().rstrip(),
    )


def decoration_length(text: bytes, start: int = 0) -> int:
    """The length of the launchers' prefixes of the line at `start`; the date of a TensorFlow header is not one."""
    at = start
    for _ in range(4):  # for example a container's timestamp before a rank and a logger's header
        if TEXT_HEADER.match(text, at):
            break
        match = _DECORATION.match(text, at)
        if match is None:
            break
        at = match.end()
    return at - start


def author_of(text: bytes, start: int) -> str:
    """The process that wrote the line at `start`, as its launchers' prefixes name it; empty without any."""
    return b"".join(text[first:stop] for first, stop in author_places(text, start)).decode("utf-8", "replace")


def author_places(text: bytes, start: int = 0) -> list[tuple[int, int]]:
    """Where the author of the line at `start` is named: the launchers' prefixes but for what changes in them."""
    places, stop = list[tuple[int, int]](), start + decoration_length(text, start)
    while start < stop:
        passing = _PASSING.search(text, start, stop)
        first = stop if passing is None else passing.start()
        if start < first:
            places.append((start, first))
        start = stop if passing is None else passing.end()
    return places


def clean_line(line: bytes, pattern: re.Pattern[bytes], decorated: bool) -> bytes:
    """`line` without colours, launchers' prefixes and header. What tpuwatch wrote itself is empty."""
    if b"\x1b" in line:
        line = _ANSI.sub(b"", line)
    start, stop = _message_span(line, pattern, decorated)
    return _unescaped(line[start:stop]) if _is_escaped(line, start, stop, decorated) else line[start:stop]


def plain_span(line: bytes, pattern: re.Pattern[bytes], decorated: bool) -> tuple[int, int] | None:
    """Where the text stands that `clean_line` gives; None if it is not part of the line as it is."""
    if b"\x1b" in line:
        return None
    start, stop = _message_span(line, pattern, decorated)
    return None if _is_escaped(line, start, stop, decorated) else (start, stop)


def _message_span(line: bytes, pattern: re.Pattern[bytes], decorated: bool) -> tuple[int, int]:
    start, stop = 0, len(line)
    if decorated:
        start = decoration_length(line)
        if start and line.startswith(JSON_FILE):
            end = _JSON_FILE_END.search(line, max(start, line.rfind(b'","stream":"') - _LINE_END))
            stop = stop if end is None else end.start()
        if line.startswith(_OWN, start):
            return stop, stop
    match = pattern.match(line, start, stop) or (_LOGGER.match(line, start, stop) if decorated else None)
    return match.end() if match else start, stop


def _is_escaped(line: bytes, start: int, stop: int, decorated: bool) -> bool:
    return decorated and line.startswith(JSON_FILE) and line.find(b"\\", start, stop) >= 0


def _unescaped(message: bytes) -> bytes:
    """The text of a JSON string, on one line."""
    try:
        text = json.loads(b'"' + message + b'"', strict=False)
    except ValueError:
        return message
    return " ".join(text.splitlines()).encode("utf-8", "surrogatepass")


def without_colours(text: bytes) -> tuple[bytes, Callable[[int], int] | None]:
    """`text` without colours, and what gives for the end of a stretch of it the end in `text`; None: the same."""
    if b"\x1b" not in text:
        return text, None
    return _ANSI.sub(b"", text), _Coloured(text).end


class _Coloured:
    """Where the stretches of a coloured text are that remain without the colours; found when first asked for."""

    def __init__(self, text: bytes) -> None:
        self._text = text
        self._starts: list[int] = []
        self._removed: list[int] = []

    def end(self, end: int) -> int:
        """Where the stretch that ends at `end` without colours ends with them."""
        if not self._removed:
            self._removed.append(0)
            for match in _ANSI.finditer(self._text):
                self._starts.append(match.start() - self._removed[-1])
                self._removed.append(self._removed[-1] + match.end() - match.start())
        return end + self._removed[bisect_left(self._starts, end)]


class Times:
    """Converts the local times of headers, which may lack the year, to seconds since the epoch."""

    def __init__(self, now: float, created: tuple[int, int, int] | None = None) -> None:
        self._now = now
        self.created = created  # year, month, day of the file's own first line
        self._minute = (b"", b"")
        self._epoch: float | None = None

    def learn(self, head: bytes) -> None:
        """Take the year from the first line of a libtpu log file."""
        if match := _CREATED.match(head):
            year, month, day = (int(part) for part in match.groups())
            self.created = (year, month, day)

    def of(self, header: Header) -> float | None:
        """Seconds since the epoch, or None if the header's date is invalid."""
        if header.date == b"0000":  # absl before its initialisation: the seconds are the Unix time
            return header.second if header.second > 1e9 else None
        minute = (header.date, header.clock)
        if minute != self._minute:
            self._minute, self._epoch = minute, self._minute_epoch(header)
        return None if self._epoch is None else self._epoch + header.second

    def _minute_epoch(self, header: Header) -> float | None:
        hour, minute = int(header.clock[:2]), int(header.clock[3:5])
        if len(header.date) > 4:
            year, month, day = (int(part) for part in header.date.split(b"-"))
            return _local(year, month, day, hour, minute)
        month, day = int(header.date[:2]), int(header.date[2:])
        if self.created is not None:
            year = self.created[0]
            epoch, start = _local(year, month, day, hour, minute), _local(*self.created, 0, 0)
            if epoch is not None and start is not None and epoch < start - _HALF_YEAR:
                return _local(year + 1, month, day, hour, minute)  # the file was started before New Year
            return epoch
        year = time.localtime(self._now).tm_year
        epoch = _local(year, month, day, hour, minute)
        if epoch is None or epoch > self._now + _DAY:
            return _local(year - 1, month, day, hour, minute)
        return epoch


def _local(year: int, month: int, day: int, hour: int, minute: int) -> float | None:
    if not (1970 <= year <= 9999 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60):
        return None
    try:
        return time.mktime((year, month, day, hour, minute, 0, 0, 0, -1))
    except (OverflowError, ValueError):
        return None
