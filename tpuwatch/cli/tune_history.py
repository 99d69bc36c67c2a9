"""Which launches `tpuwatch tune` looks at: those of the daemon's journal, of the daemon itself, or of the user."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.cli import daemon
from tpuwatch.errors import JournalError, TpuwatchError, TuneError
from tpuwatch.journal import JournalReader
from tpuwatch.model import Cause, Launch, Outcome
from tpuwatch.tune.records import read_records

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tpuwatch.config import Config

JOURNAL, DAEMON, RECORDS, UNREAD = "journal", "daemon", "records", "plans"  # kinds of history
_LAUNCHES: Final = 1000  # of all workloads
_FIELDS: Final = tuple(field.name for field in fields(Launch))


@dataclass(frozen=True, slots=True)
class History:
    """Launches of all workloads, and where they were found."""

    launches: Sequence[Launch]
    kind: str  # JOURNAL, DAEMON, RECORDS; UNREAD: there may be launches, but this user cannot see them
    where: str  # for people


def read_history(config: Config, directory: Path) -> History:
    """The launches of the journal, where this user may read it; else of the daemon, if it answers; else those that
    `tpuwatch exec` left in the tune `directory`, where that is the user's own. Raises TuneError where records are there
    that cannot be read."""
    try:
        launches = JournalReader.open(config.state.dir).launches(_LAUNCHES)
        return History(launches, JOURNAL, f"the journal in {config.state.dir}")
    except JournalError as error:
        unread = error
    try:
        address = daemon.address(config)
        answer = daemon.ask(address, "launches", "launches", f"?limit={_LAUNCHES}")
        return History([_launch(one) for one in answer["launches"]], DAEMON, f"the daemon at {address}")
    except (TpuwatchError, ValueError, TypeError, KeyError):  # none runs, or an older one
        pass
    if directory == config.tune_dir and _is_there(config.state.dir):
        return History((), UNREAD, f"{unread}; no daemon answers either")
    try:
        records = read_records(directory)
    except OSError as error:
        raise TuneError(f"cannot read the records in {directory}: {error.strerror}; may this user read it?") from error
    found = {
        (launch.pid, launch.started): replace(launch, workload=launch.workload or record.workload)
        for record in records
        for launch in record.launches
    }
    launches = list(found.values())
    return History(launches, RECORDS, f"the records of `tpuwatch exec` in {directory}")


def _is_there(directory: Path) -> bool:
    """Whether a daemon has its journal there, as far as this user may see."""
    from tpuwatch.journal.schema import FILE_NAME

    try:
        (directory / FILE_NAME).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


def _launch(document: dict[str, Any]) -> Launch:
    """A launch as the daemon's API tells it (tpuwatch.export.jsonable)."""
    known = {
        name: document[key]
        for name in _FIELDS
        for key in (f"{name}_epoch" if f"{name}_epoch" in document else name,)
        if key in document
    }
    known["outcome"] = Outcome(known["outcome"])
    known["cause"] = Cause(known["cause"]) if known.get("cause") else None
    return Launch(**known)
