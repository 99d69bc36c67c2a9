"""What a child process leaves in its directory: what it printed, and libtpu's log of it."""

from __future__ import annotations

import time
from functools import cache
from typing import TYPE_CHECKING, Final

from tpuwatch.diagnose import RecognisedRecord, fold, stream_kind
from tpuwatch.logs import LogParser, Scanner, for_programs, load_catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tpuwatch.model import Finding

OUTPUT: Final = "output.txt"
LOGS: Final = "logs"  # the directory for libtpu's
MAX_READ: Final = 64 << 20  # bytes of a file, from its end
_TAIL_BYTES: Final = 2000


def find_faults(directory: Path, since: Mapping[Path, int] | None = None) -> tuple[Finding, ...]:
    """What the rules make of the output and of libtpu's log, in the order in which to act.

    `since`: the bytes of each log that are of something else.
    """
    begins = dict.fromkeys(logs_of(directory / LOGS), 0) | dict(since or {})
    return tuple(fold(_recognised({directory / OUTPUT: 0, **begins}), of_job=True))


def tail(directory: Path) -> str:
    """The end of what the child printed."""
    return _end(directory / OUTPUT, _TAIL_BYTES).decode("utf-8", "replace")


def findings_of(path: Path) -> tuple[Finding, ...]:
    """What the rules make of a log, in that order. Raises OSError."""
    return tuple(fold(_recognised({path: 0}), of_job=True))


def logs_of(directory: Path) -> list[Path]:
    """The files with all of libtpu's log, one for each process."""
    return [path for path in directory.iterdir() if ".INFO." in path.name and not path.is_symlink()]


def _recognised(begins: Mapping[Path, int]) -> Iterator[RecognisedRecord]:
    scanner = _scanner()
    for path, begin in begins.items():
        data = _end(path, MAX_READ, begin)
        parser = LogParser(scanner, stream_kind(path.name, data), now=time.time(), count_lines=True)
        for match in [*parser.feed(data), *parser.finish()]:
            yield RecognisedRecord.from_match(match, path.name, time.time())


@cache
def _scanner() -> Scanner:
    return Scanner(for_programs(load_catalogue()))


def _end(path: Path, most: int, begin: int = 0) -> bytes:
    with path.open("rb") as file:
        file.seek(max(begin, path.stat().st_size - most))
        return file.read(most)
