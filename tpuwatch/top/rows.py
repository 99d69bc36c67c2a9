"""The table of nodes: a row for each machine whose daemon is asked, and for each node that these watch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import rank, tone

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from tpuwatch.model import DaemonDocument, NodeDocument, Tone

NO_ANSWER: Final = "no answer"


@dataclass(frozen=True, slots=True)
class Row:
    """A node in one line. Unknown numbers are None."""

    key: tuple[str, ...]  # stays the same as long as it is the same node
    name: str
    zone: str
    verdict: str
    tone: Tone
    summary: str
    seconds: float | None = None  # for which the verdict has held
    hbm: float | None = None  # of the fullest chip, 0 to 1
    duty: float | None = None  # of the busiest chip, 0 to 1
    findings: int | None = None  # that are not over
    address: str = ""  # of the daemon on it, if that is one of those asked
    document: NodeDocument | None = None  # of a node that is only watched
    now: float = 0.0  # of that document: seconds since the epoch


_Order = Callable[[Row], tuple[Any, ...]]
ORDERS: Final[Mapping[str, _Order]] = {
    "worst": lambda row: (row.tone != "bad", row.tone != "warn", rank(row.verdict)),
    "name": lambda row: (row.name,),
    "zone": lambda row: (row.zone,),
    "age": lambda row: (row.seconds is None, row.seconds or 0.0),
    "HBM": lambda row: (row.hbm is None, -(row.hbm or 0.0)),
    "duty": lambda row: (row.duty is None, -(row.duty or 0.0)),
    "findings": lambda row: (row.findings is None, -(row.findings or 0)),
}


def rows_of(documents: DaemonDocument) -> Sequence[Row]:
    """The rows of one daemon: its own machine, and the nodes that it watches from there."""
    others = [_watched(node, documents.nodes.now) for node in documents.nodes.nodes if not node.own]
    return (_own(documents), *others)


def silent(address: str, reason: str) -> Row:
    """The row of a daemon that does not answer: how its node is, is not known."""
    return Row(("daemon", address), address, "", NO_ANSWER, "warn", reason, address=address)


def merged(rows: Iterable[Row]) -> list[Row]:
    """Each node once: by its own daemon where that is asked, else by the first that watches it."""
    rows = list(rows)
    own = {(row.zone, row.key[-1]) for row in rows if row.address and len(row.key) > 2}
    found: dict[tuple[str, ...], Row] = {}
    for row in rows:
        if row.address or (row.zone, row.key[-1]) not in own:
            found.setdefault(row.key, row)
    return list(found.values())


def wanted(rows: Iterable[Row], text: str, order: str, *, reverse: bool) -> list[Row]:
    """The rows that have each word of the text, in this order; among equals by name."""
    words = text.casefold().split()
    found = [row for row in rows if all(word in _searched(row) for word in words)]
    by = ORDERS[order]
    found.sort(key=lambda row: (row.name, row.zone))
    found.sort(key=by, reverse=reverse)
    return found


def _searched(row: Row) -> str:
    return f"{row.zone}/{row.name} {row.verdict} {row.summary}".casefold()


def _own(documents: DaemonDocument) -> Row:
    address = documents.address
    status = documents.status
    node, identity = status.node, status.identity
    worker = identity.worker.value if identity else ""
    several = identity is not None and identity.hosts.value not in ("", "1")
    name = node.node if node and node.node else status.host_name or address
    chips = status.runtime.chips if status.runtime else ()
    sizes = ((one.hbm_used_bytes, one.hbm_total_bytes) for one in chips)
    duties = [one.duty_cycle for one in chips if one.duty_cycle is not None]
    since = node.since if node else None
    verdict = node.verdict if node else "unknown"
    return Row(
        ("daemon", address, name),
        f"{name} w{worker}" if several and worker else name,
        node.zone if node else "",
        verdict,
        tone(verdict),
        node.summary if node else status.headline,
        None if since is None else status.now - since,
        max((used / total for used, total in sizes if used is not None and total), default=None),
        max(duties, default=None),
        status.problem_counts.get("finding"),
        address,
    )


def _watched(node: NodeDocument, now: float) -> Row:
    return Row(
        (node.zone, node.node),
        node.node,
        node.zone,
        node.verdict,
        tone(node.verdict),
        node.summary,
        None if node.since is None else now - node.since,
        document=node,
        now=now,
    )
