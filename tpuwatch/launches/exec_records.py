"""The records of `tpuwatch exec` as files: in the daemon's drop box, or in the user's own directory.

In the drop box anybody may leave anything. Only regular files with one name are read, never through a link, up to a
size; what is no record is removed and reported, and never delays the rest.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import stat
from collections.abc import Mapping  # noqa: TC003 # `tpuwatch exec` reads the annotations
from dataclasses import asdict, dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean, redact
from tpuwatch.model import Launch

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator
    from pathlib import Path

    from tpuwatch.model import Finding

DIRECTORY: Final = "launches"  # in the tune directory
BOX_MODE: Final = 0o1733  # all users may add a file, none may list it or touch the files of others
KEPT: Final = 500  # records in a user's own directory
MAX_TAKEN: Final = 200  # files that one call of `take_records` looks into
_MAX_LISTED: Final = 100_000  # that are looked at in the directory
_MAX_REFUSALS: Final = 5  # that are reported, of one call
_UNFINISHED_SECONDS: Final = 3600.0  # a file that is being written for longer was abandoned
_AHEAD_SECONDS: Final = 300.0  # by which a record may be ahead of our clock, which may have been set back
_NAME: Final = re.compile(r"[0-9]{1,12}-[0-9a-f]{16}\.json")
_DIRECTORY_FLAGS: Final = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_WRITE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_READ_FLAGS: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
VERSION: Final = 1
MAX_BYTES: Final = 256 << 10  # of a record's file
_LEEWAY_SECONDS: Final = 60.0  # that clocks may differ by, or be set by meanwhile


@dataclass(frozen=True, slots=True)
class RecordedFinding:
    """What was wrong with the command, as its user was told. Times are seconds since the epoch."""

    cause: str
    rule: str  # the id of the rule that has the summary and the remedy
    text: str  # the lines that were recognised first, redacted
    count: int
    first: float  # when it happened first,
    last: float  # and last
    details: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, finding: Finding) -> RecordedFinding:
        """The finding as the daemon needs it to make an event of it."""
        first, last = finding.first.when, max(finding.first.when, finding.last.when)
        text = redact(finding.first.text)
        return cls(finding.cause.value, finding.rule, text, finding.count, first, last, finding.details)


@dataclass(frozen=True, slots=True)
class ExecRecord:
    """One run of `tpuwatch exec`. Times are seconds since the epoch."""

    id: str  # the launch's, as TPUWATCH_LAUNCH has it
    workload: str
    started: float
    ended: float
    exit_status: int | None  # as the shell counts: 128 and more for signals
    launches: tuple[Launch, ...] = ()  # processes of the command that initialised the TPU
    given: tuple[str, ...] = ()  # variables that tpuwatch set
    kept: tuple[str, ...] = ()  # variables that were set already and stayed so
    causes: tuple[str, ...] = ()  # of its findings, in the order in which to act
    findings: tuple[RecordedFinding, ...] = ()  # those that were reported
    version: int = VERSION
    owner: str = ""  # the user whose file it is; not part of it
    file: str = ""  # the file's name in its directory; not part of it


@dataclass(frozen=True, slots=True)
class Taken:
    """What was found in the drop box. The records' files are there until `discard_record` is called."""

    records: tuple[ExecRecord, ...] = ()  # the oldest first, by their names
    refused: int = 0  # files that were no records, and were removed as far as that was possible
    why: tuple[str, ...] = ()  # a sentence on each of the first of them
    more: bool = False  # there are files that were not looked into


def make_drop_box(directory: Path) -> None:
    """Make the daemon's tune directory and the drop box in it, as they have to be. Raises OSError."""
    directory.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
    for path, mode in ((directory, 0o755), (directory / "plans", 0o755), (directory / DIRECTORY, BOX_MODE)):
        path.mkdir(mode=0o700, exist_ok=True)
        with _opened(path, 0 if path == directory else os.O_NOFOLLOW) as descriptor:
            if stat.S_IMODE(os.fstat(descriptor).st_mode) != mode:
                path.chmod(mode)  # whatever the umask is


def write_record(directory: Path, record: ExecRecord) -> Path:
    """Leave the record in a tune directory; the path of its file. Raises OSError.

    It has its name only once it is whole.
    """
    box = directory / DIRECTORY
    with contextlib.suppress(PermissionError):  # the drop box is there, and its directory is not ours
        box.mkdir(mode=0o700, parents=True, exist_ok=True)
    name = f"{max(0, int(record.started))}-{secrets.token_hex(8)}.json"
    unfinished = f".{name}"
    with _opened(box) as where:
        descriptor = os.open(unfinished, _WRITE_FLAGS, 0o600, dir_fd=where)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(dumps(record))
                file.flush()
                os.fchmod(file.fileno(), 0o644)  # whatever the umask is
                os.fsync(file.fileno())
            os.rename(unfinished, name, src_dir_fd=where, dst_dir_fd=where)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(unfinished, dir_fd=where)
            raise
    return box / name


def read_records(directory: Path) -> list[ExecRecord]:
    """The records of this user and root in a tune directory, the oldest first, KEPT at most: the newest.

    What is no record is left out. Raises OSError unless there are none.
    """
    found = []
    try:
        with _opened(directory / DIRECTORY) as where:
            for name in _records(where)[-KEPT:]:
                with contextlib.suppress(OSError, ValueError):
                    record, owner = _read(where, name)
                    if owner in (0, os.geteuid()):
                        found.append(record)
    except FileNotFoundError:
        return []
    return sorted(found, key=lambda record: record.started)


def trim_records(directory: Path, kept: int = KEPT) -> None:
    """Remove all but the newest `kept` records from a user's own directory. Raises OSError."""
    with _opened(directory / DIRECTORY) as where:
        names = _records(where)
        _unlink(where, names[: max(0, len(names) - kept)])


def take_records(directory: Path, *, now: float, skip: Collection[str] = (), limit: int = MAX_TAKEN) -> Taken:
    """Look into the drop box of the daemon's tune directory: into `limit` files that are not to be skipped.

    `now`: seconds since the epoch. Raises OSError when the drop box itself cannot be looked at.
    """
    records: list[ExecRecord] = []
    why: list[str] = []
    refused = looked = 0
    more = False
    with _opened(directory / DIRECTORY) as where:
        for name in _names(where):
            if name in skip or _unfinished(where, name, now):
                continue
            if looked >= limit:
                more = True
                break
            looked += 1
            try:
                record, owner = _read(where, name)
                if record.ended > now + _AHEAD_SECONDS:
                    raise ValueError("it is of the future")  # noqa: TRY301 (one of the things that may be wrong)
            except FileNotFoundError:
                continue
            except (OSError, ValueError) as error:
                refused += 1
                gone = _removed(where, name)
                if len(why) < _MAX_REFUSALS:
                    why.append(_refusal(name, error, gone=gone))
            else:
                records.append(replace(record, owner=_user(owner)))
    return Taken(tuple(records), refused, tuple(why), more)


def discard_record(directory: Path, names: Iterable[str]) -> None:
    """Remove records that were taken. Raises OSError."""
    with _opened(directory / DIRECTORY) as where:
        _unlink(where, names)


@contextlib.contextmanager
def _opened(directory: Path, flags: int = os.O_NOFOLLOW) -> Iterator[int]:
    descriptor = os.open(directory, _DIRECTORY_FLAGS | flags)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _names(where: int) -> list[str]:
    """All names there, the oldest first."""
    readable = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=where)
    try:
        with os.scandir(readable) as entries:
            return sorted((entry.name for entry in islice(entries, _MAX_LISTED)), key=_age)
    finally:
        os.close(readable)


def _records(where: int) -> list[str]:
    """The names that are a record's, the oldest first."""
    return list(filter(_NAME.fullmatch, _names(where)))


def _unlink(where: int, names: Iterable[str]) -> None:
    for name in names:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(name, dir_fd=where)


def _age(name: str) -> tuple[int, str]:
    """The order of the names: by their time; what is no record's name comes last."""
    return (int(name.partition("-")[0]), name) if _NAME.fullmatch(name) else (1 << 62, name)


def _unfinished(where: int, name: str, now: float) -> bool:
    """Whether it may still be in writing."""
    if not name.startswith("."):
        return False
    try:
        changed = os.stat(name, dir_fd=where, follow_symlinks=False).st_ctime
    except OSError:
        return True
    return now - changed < _UNFINISHED_SECONDS


def _read(where: int, name: str) -> tuple[ExecRecord, int]:
    """A record, and its owner's number. Raises OSError, and ValueError for what is none."""
    if not _NAME.fullmatch(name):
        raise ValueError("its name is not a record's")
    descriptor = os.open(name, _READ_FLAGS, dir_fd=where)
    with os.fdopen(descriptor, "rb", buffering=0) as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ValueError("it is no regular file")
        if found.st_nlink != 1:
            raise ValueError("it has another name besides")
        if found.st_size > MAX_BYTES:
            raise ValueError(f"it is larger than {MAX_BYTES} bytes")
        raw = b""
        while len(raw) <= MAX_BYTES and (piece := file.read(MAX_BYTES + 1 - len(raw))):
            raw += piece
    if len(raw) > MAX_BYTES:
        raise ValueError(f"it is larger than {MAX_BYTES} bytes")
    return replace(loads(raw), file=name), found.st_uid


def _removed(where: int, name: str) -> bool:
    try:
        try:
            os.unlink(name, dir_fd=where)
        except IsADirectoryError:
            os.rmdir(name, dir_fd=where)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def _refusal(name: str, error: Exception, *, gone: bool) -> str:
    reason = error.strerror or "" if isinstance(error, OSError) else str(error)
    what = "It was removed." if gone else "It cannot be removed; remove it yourself."
    return f"{clean(name, 80)} is no record of a launch: {clean(reason)}. {what}"


def _user(number: int) -> str:
    """The name of a user, or the number of one without a name."""
    import pwd

    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


# -- a record as JSON


def dumps(record: ExecRecord) -> bytes:
    """The record as a line of JSON."""
    document = asdict(record)
    for name in ("owner", "file"):
        del document[name]
    for launch in document["launches"]:
        for name in ("id", "output", "superseded"):
            del launch[name]
    return f"{json.dumps(document, allow_nan=False)}\n".encode("ascii")


def loads(raw: bytes) -> ExecRecord:
    """The record in a file's bytes. Raises ValueError, with what is wrong in it, for anything else."""
    try:
        document = json.loads(raw)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not isinstance(document, dict):
        raise ValueError("it is no table")  # noqa: TRY004 (all that is wrong with a file is a ValueError)
    if document.get("version") != VERSION:
        raise ValueError(f"its version is not {VERSION}")
    found = _checked(document)
    if found["ended"] < found["started"]:
        raise ValueError("it ends before it starts")
    found["launches"] = tuple(Launch(**launch) for launch in found["launches"])
    found["findings"] = tuple(RecordedFinding(**finding) for finding in found["findings"])
    first, last = found["started"] - _LEEWAY_SECONDS, found["ended"] + _LEEWAY_SECONDS
    if not all(first <= launch.started <= last for launch in found["launches"]):
        raise ValueError("a launch in it is of another time")
    return ExecRecord(**found)


def _checked(document: dict[str, Any]) -> dict[str, Any]:
    """The fields of a record. Raises ValueError with the name of the first that is wrong."""
    from pydantic import ValidationError

    from tpuwatch.launches.record_schema import RecordSchema

    try:
        return RecordSchema.model_validate(document).model_dump()
    except ValidationError as error:
        fault = error.errors()[0]
        name, *inner = fault["loc"]
        missing = fault["type"] == "missing" and not inner
        raise ValueError(f"it has no {name}" if missing else f"its {name} cannot be right") from error
