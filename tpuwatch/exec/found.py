"""What the watcher found in a command's output and logs, as it hands it to the process that waits for it."""

from dataclasses import dataclass

from tpuwatch.launches import RecordedFinding
from tpuwatch.model import DiagnosisDocument, Launch


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundDocument(DiagnosisDocument):
    """A diagnosis, with what the record of the run keeps of it."""

    records: tuple[Launch, ...] = ()
    recorded: tuple[RecordedFinding, ...] = ()
    unread_bytes: int = 0


NOTHING = FoundDocument(findings=(), launches=())
