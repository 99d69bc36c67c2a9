"""All that `tpuwatch top` asks of a daemon."""

from dataclasses import dataclass

from tpuwatch.model.documents.logs import KnownFindingDocument, LaunchDocument
from tpuwatch.model.documents.nodes import NodesDocument
from tpuwatch.model.documents.restarts import RestartsDocument
from tpuwatch.model.documents.status import StatusDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedDaemonDocument:
    """A daemon of which nothing is known but why it does not answer."""

    address: str
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonDocument(AskedDaemonDocument):
    """One answer of a daemon, as `tpuwatch top` asks for it and prints it."""

    status: StatusDocument
    findings: tuple[KnownFindingDocument, ...]
    launches: tuple[LaunchDocument, ...]
    nodes: NodesDocument
    restarts: RestartsDocument
