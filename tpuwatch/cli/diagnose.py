"""`tpuwatch diagnose`: what is wrong in a text, and what to do."""

from __future__ import annotations

import gc
import os
import sys
import time
from functools import cached_property
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping, Sequence

    from tpuwatch.core import TpuwatchError
    from tpuwatch.diagnose import RecognisedRecord
    from tpuwatch.launches import LaunchTracker
    from tpuwatch.logs import Catalogue, LogParser, Match, Scanner
    from tpuwatch.model import Finding, Launch, TunePlan

_PROSE_BYTES = 256 << 10  # nobody writes longer texts; to search a log for what people write takes twice as long
_EMPTY = "{} is empty: name the log of the launch, or paste what the job printed"
_NO_REPORT = "{} reads as {}: the failures in it are taken for none that happened"
_BAR_FROM_BYTES = 32 << 20
_BAR_WIDTH = 40
_BAR_SECONDS = 0.2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "files",
        nargs="*",
        metavar="FILE",
        help="texts to read, also packed by gzip, bzip2 or xz; - or none: standard input",
    )
    parser.add_argument(
        "--rules", action="append", default=[], metavar="DIR", help="a directory of own rules; may be given again"
    )
    parser.add_argument(
        "--exit-code",
        action="store_true",
        help="end with 1 when a cause was found, and with 3 when something failed that no rule explains",
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Read all, then print the findings in the order in which to act."""
    gc.disable()  # until the rules are there: of what start-up makes nothing can be freed
    try:
        return _run(args)
    finally:
        gc.enable()


def _run(args: argparse.Namespace) -> int:
    from tpuwatch.diagnose import fold
    from tpuwatch.launches import LaunchTracker
    from tpuwatch.logs import STDIN, NoSuchFileError, load_catalogue
    from tpuwatch.model import Cause

    files = args.files or [STDIN]
    if files == [STDIN] and sys.stdin is not None and sys.stdin.isatty():
        print("Paste the text, then press Ctrl-D.", file=sys.stderr)
    catalogue = load_catalogue(args.rules)
    if catalogue.refused:
        raise catalogue.refused[0]
    tracker = LaunchTracker()
    unreadable: dict[str, TpuwatchError] = {}  # by the file's name
    findings = fold(_read_all(files, _Scanners(catalogue), tracker, unreadable))
    if any(finding.cause is Cause.PREMAPPED_EXHAUSTED for finding in findings):
        from tpuwatch.tune import with_sizes

        findings = with_sizes(findings, tracker.latest()[::-1], *_decided_here())
    if findings or args.json or len(unreadable) < len(set(files)):  # else nothing is known
        _print(findings, tracker.latest(), unreadable, as_json=args.json)
    for error in unreadable.values():
        options.print_note(str(error))
    if any(isinstance(error, NoSuchFileError) for error in unreadable.values()):
        return 2
    if unreadable:
        return 3
    if not args.exit_code or not findings:
        return 0
    return 3 if all(finding.cause is Cause.UNKNOWN_FAILURE for finding in findings) else 1


def _decided_here() -> tuple[Sequence[Launch], list[TunePlan]]:
    """The launches that this machine knows, the newest first, and the plans that stand on it; none where that cannot be
    looked at: a text may be of any machine, and is diagnosed all the same.
    """
    from tpuwatch.config import read_config
    from tpuwatch.core import TpuwatchError
    from tpuwatch.tune import plan_directory, standing_plans

    try:
        directory = plan_directory(read_config(None, os.environ).tune_dir, os.environ)
        plans = standing_plans(directory)
        if not plans:
            return (), []
        from tpuwatch.cli.tune import launch_history
        from tpuwatch.config import load_config

        known = launch_history(load_config(None, os.environ), directory).launches
    except TpuwatchError:
        return (), []
    return sorted(known, key=lambda one: -one.started), plans


def _read_all(
    files: list[str], scanners: _Scanners, tracker: LaunchTracker, unreadable: dict[str, TpuwatchError]
) -> Iterator[RecognisedRecord]:
    """What the rules recognise in all files; a file that cannot be read does not keep the others from it."""
    from tpuwatch.logs import STDIN, UnreadableError, size_of

    bar, empty = _Bar(sum(size_of(name) for name in files)), 0
    for name in files:
        text = _Text(name, scanners, tracker)
        try:
            yield from text.records(bar)
        except UnreadableError as error:
            unreadable[name] = error
        empty += text.is_empty
        bar.next_file()
    bar.clear()
    if empty == len(files):  # beside others an empty log is usual: libtpu makes one for warnings
        unreadable.update(
            (name, UnreadableError(_EMPTY.format("standard input" if name == STDIN else name))) for name in files
        )


class _Text:
    """A text, read once."""

    def __init__(self, name: str, scanners: _Scanners, tracker: LaunchTracker) -> None:
        from tpuwatch.logs import STDIN, libtpu_file

        self._name = name
        self._shown = "<stdin>" if name == STDIN else name
        self.is_empty = False
        self._scanners = scanners
        self._tracker = tracker
        self._now = time.time()
        self._file = libtpu_file(name)
        self._pid = self._file.pid

    def records(self, bar: _Bar) -> Iterator[RecognisedRecord]:
        """What the rules recognise. Raises UnreadableError after that of the part that can be read."""
        from tpuwatch.logs import UnreadableError, WholeText, over_lines, text_chunks

        parser, short, held = None, b"", []  # a short text is held until it is known whole
        hidden: list[Match] = []
        try:
            for chunk in text_chunks(self._name, bar.show):
                short = chunk if parser is None and len(chunk) <= _PROSE_BYTES else b""
                if parser is None:
                    parser = self._parser(chunk)
                held += parser.feed(chunk)
                if not short:
                    yield from map(self._on_match, held)
                    held = []
        except UnreadableError:
            if parser is not None:  # it was read up to where it is damaged
                yield from map(self._on_match, held + parser.finish())
            raise
        self.is_empty = parser is None
        if parser is not None:
            held += parser.finish()
        if short:
            held, hidden = over_lines(short, held, self._matches_in)
            text, found = WholeText(short), len(held) + len(hidden)
            held, hidden = list(filter(text.tells, held)), list(filter(text.tells, hidden))
            if not text.kind.tells and len(held) + len(hidden) < found:
                options.print_note(_NO_REPORT.format(self._shown, text.kind.value))
        yield from map(self._on_match, held)
        yield from map(self._record, hidden)

    def _matches_in(self, text: bytes) -> list[Match]:
        parser = self._parser(text)
        return [*parser.feed(text), *parser.finish()]

    def _parser(self, beginning: bytes) -> LogParser:
        from tpuwatch.diagnose import stream_kind
        from tpuwatch.logs import LogParser

        scanner, kind = self._scanners.of(beginning), stream_kind(self._name, beginning)
        return LogParser(scanner, kind, now=self._now, count_lines=True, fold=True)

    def _on_match(self, match: Match) -> RecognisedRecord:
        from tpuwatch.launches import Origin

        file = self._file
        if match.rule.mark == "banner":
            self._pid = self._pid or match.details.get("pid")
        stream = f"{self._shown} {match.author}".rstrip() if file.pid is None else ""
        origin = Origin(self._pid, file.user, file.host, output=file.pid is None, stream=stream)
        if not match.rule.prose:  # prose counts only where no other rule matches, and is no word of a launch
            self._tracker.observe(match, origin, self._now)
        return self._record(match)

    def _record(self, match: Match) -> RecognisedRecord:
        from tpuwatch.diagnose import RecognisedRecord

        return RecognisedRecord.from_match(match, self._shown, self._now)


class _Scanners:
    """The rules, compiled when a text needs them: in a long text only those of programs."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def of(self, beginning: bytes) -> Scanner:
        """The rules for a text whose first chunk is this one; that is all of it if it is short."""
        scanner = self._of_programs if len(beginning) > _PROSE_BYTES else self._of_all
        gc.enable()
        return scanner

    @cached_property
    def _of_all(self) -> Scanner:
        from tpuwatch.logs import Scanner

        return Scanner(self._catalogue)

    @cached_property
    def _of_programs(self) -> Scanner:
        from tpuwatch.logs import Scanner, for_programs

        return Scanner(for_programs(self._catalogue))


def _print(
    findings: list[Finding], launches: list[Launch], unreadable: Mapping[str, TpuwatchError], *, as_json: bool
) -> None:
    from tpuwatch.core import encode, like
    from tpuwatch.model import DiagnoseDocument, DiagnosisDocument, UnreadDocument
    from tpuwatch.terminal import Console, print_findings

    found = DiagnosisDocument.of(findings, launches)
    if as_json:
        unread = tuple(UnreadDocument(file=name, problem=str(error)) for name, error in unreadable.items())
        options.print_json(encode(like(DiagnoseDocument, found, unreadable=unread)))
    else:
        print_findings(Console(sys.stdout), found.findings, found.launches, complete=not unreadable)


class _Bar:
    """How far a long read has come, on standard error, if that is a terminal."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._done = self._here = 0
        self._next = time.monotonic() + _BAR_SECONDS
        self._shown = False
        self._wanted = size >= _BAR_FROM_BYTES and sys.stderr.isatty()

    def show(self, taken: int) -> None:
        """`taken` bytes of the present file have been read."""
        self._here = taken
        now = time.monotonic()
        if not self._wanted or now < self._next:
            return
        self._next, self._shown = now + _BAR_SECONDS, True
        share = min(1.0, (self._done + taken) / self._size)
        filled = round(share * _BAR_WIDTH)
        sys.stderr.write(f"\r{'█' * filled}{'░' * (_BAR_WIDTH - filled)} {share:4.0%}")
        sys.stderr.flush()

    def next_file(self) -> None:
        self._done, self._here = self._done + self._here, 0

    def clear(self) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
