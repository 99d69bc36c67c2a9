"""The table of watched nodes on the status page: which of them are asked for, in which order, and how many at once.

All of it is done here and not in the browser, so that a page is small and quick with thousands of nodes.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from tpuwatch.model import cloud_words, is_bad, queued_words, rank, tone, verdict_words, worst_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tpuwatch.model import JudgedNode

ROWS: Final = 100  # on one page
BAD: Final = "bad"  # the choice of all verdicts that are bad
COLUMNS: Final = {"urgency": "Verdict", "node": "Node", "zone": "Zone", "since": "For", "cloud": "The cloud says"}
_URGENCY: Final = "urgency"
_DIGITS: Final = re.compile(r"(\d{1,18})")


@dataclass(frozen=True, slots=True)
class FleetQuery:
    """What is asked for, as it stands in the page's address."""

    find: str = ""  # words, all of which are in a node's row
    verdict: str = ""  # a verdict's value, or BAD; empty: all
    zone: str = ""
    sort: str = _URGENCY  # a key of COLUMNS; with "-" before it from the other end
    page: int = 1

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> FleetQuery:
        """From an address's parameters. Raises ValueError, with what would be right."""
        sort, page = values.get("sort") or _URGENCY, values.get("page", "1")
        if sort.removeprefix("-") not in COLUMNS:
            raise ValueError(f"sort must be one of {', '.join(COLUMNS)}, with a - before it for the other direction.")
        if not (page.isascii() and page.isdecimal() and 1 <= len(page) < 10 and int(page) >= 1):
            raise ValueError("page must be a whole number from 1 on.")
        return cls(values.get("find", ""), values.get("verdict", ""), values.get("zone", ""), sort, int(page))

    def link(self, **changes: Any) -> str:
        """The address of the page with these changes; it begins with its first row unless `page` is changed."""
        other = replace(self, **{"page": 1, **changes})
        given = {name: getattr(other, name) for name in FLEET_PARAMETERS if getattr(other, name) != getattr(_ALL, name)}
        return f"/?{urlencode(given)}#fleet" if given else "/#fleet"

    @property
    def is_narrowed(self) -> bool:
        """Whether it asks for less than all nodes."""
        return bool(self.find or self.verdict or self.zone)


FLEET_PARAMETERS: Final = ("find", "verdict", "zone", "sort", "page")
_ALL: Final = FleetQuery()


@dataclass(frozen=True, slots=True)
class Column:
    """A heading of the table: `link` sorts by it, the other way round where the table is sorted by it already."""

    title: str
    link: str
    sorted: str  # for aria-sort: "ascending", "descending" or "none"


@dataclass(frozen=True, slots=True)
class Choice:
    """Nodes with a verdict, or all that are bad: `link` shows these alone, or all again."""

    words: str
    tone: str
    number: int
    link: str
    is_chosen: bool


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the bar over all nodes, in percent of its width."""

    tone: str
    start: float
    width: float


@dataclass(frozen=True, slots=True)
class FleetTable:
    """One page of the table."""

    query: FleetQuery
    rows: Sequence[JudgedNode]
    first: int  # the number of the first row, from 1 on
    found: int  # nodes that are asked for
    watched: int
    columns: Sequence[Column]
    choices: Sequence[Choice]
    shares: Sequence[Share]
    zones: Sequence[str]
    orders: Sequence[tuple[str, str]]  # for screens without room for headings: what `sort` may be, and its words
    previous: str  # addresses; empty where there is none
    next: str


def fleet_table(nodes: Sequence[JudgedNode], query: FleetQuery) -> FleetTable:
    """What a page shows of all watched nodes. A page behind the last one is the last one."""
    found = _sorted([node for node in nodes if _is_wanted(node, query)], query.sort)
    last = max(1, -(-len(found) // ROWS))
    page = min(query.page, last)
    start = (page - 1) * ROWS
    return FleetTable(
        query=query,
        rows=found[start : start + ROWS],
        first=start + 1,
        found=len(found),
        watched=len(nodes),
        columns=[_column(name, query) for name in COLUMNS],
        choices=list(_choices(nodes, query)),
        shares=list(_shares(nodes)),
        zones=sorted({node.zone for node in nodes}),
        orders=list(_orders(query)),
        previous=query.link(page=page - 1) if page > 1 else "",
        next=query.link(page=page + 1) if page < last else "",
    )


def _is_wanted(node: JudgedNode, query: FleetQuery) -> bool:
    verdict = node.judgement.verdict
    if query.zone and node.zone != query.zone:
        return False
    if query.verdict and not (is_bad(verdict) if query.verdict == BAD else verdict.value == query.verdict):
        return False
    if not query.find:
        return True
    words = verdict_words(verdict, node.judgement.kind, last_known=node.judgement.is_last_known)
    text = f"{node.node} {node.zone} {words} {_cloud(node)} {node.judgement.summary}".casefold()
    return all(word in text for word in query.find.casefold().split())


def _sorted(nodes: Iterable[JudgedNode], sort: str) -> list[JudgedNode]:
    ordered = worst_first(nodes)
    name = sort.removeprefix("-")
    if name != _URGENCY:
        ordered.sort(key=_KEYS[name])
    return ordered[::-1] if sort.startswith("-") else ordered


def _natural(text: str) -> list[tuple[int, str]]:
    """train-2 comes before train-10."""
    return [(int(part) if number % 2 else 0, part) for number, part in enumerate(_DIGITS.split(text))]


def _cloud(node: JudgedNode) -> str:
    if node.queued:
        return queued_words(node.queued.state)
    return cloud_words(node.cloud.state, node.cloud.health) if node.cloud else ""


_KEYS: Final[dict[str, Callable[[JudgedNode], Any]]] = {
    "node": lambda node: _natural(node.node),
    "zone": lambda node: (node.zone, _natural(node.node)),
    "since": lambda node: -(node.judgement.since or 0.0),  # the shortest first
    "cloud": lambda node: (_cloud(node), _natural(node.node)),
}


def _column(name: str, query: FleetQuery) -> Column:
    direction = {name: "ascending", f"-{name}": "descending"}.get(query.sort, "none")
    return Column(COLUMNS[name], query.link(sort=f"-{name}" if direction == "ascending" else name), direction)


def _orders(query: FleetQuery) -> Iterable[tuple[str, str]]:
    for name, title in COLUMNS.items():
        yield ("" if name == _URGENCY else name), f"By {title.lower()}"
    if query.sort.startswith("-"):
        yield query.sort, f"By {COLUMNS[query.sort[1:]].lower()}, from the other end"


def _choices(nodes: Iterable[JudgedNode], query: FleetQuery) -> Iterable[Choice]:
    counts = Counter(node.judgement.verdict for node in nodes)
    bad = sum(number for verdict, number in counts.items() if is_bad(verdict))
    kinds = sum(is_bad(verdict) for verdict in counts)
    yield Choice("all", "plain", sum(counts.values()), query.link(verdict=""), not query.verdict)
    if kinds > 1:
        yield _choice(BAD, BAD, bad, query)
    for verdict in sorted(counts, key=rank):
        yield _choice(verdict.value, tone(verdict), counts[verdict], query)


def _choice(value: str, colour: str, number: int, query: FleetQuery) -> Choice:
    is_chosen = query.verdict == value
    return Choice(value, colour, number, query.link(verdict="" if is_chosen else value), is_chosen)


def _shares(nodes: Sequence[JudgedNode]) -> Iterable[Share]:
    """The worst at the left. Of a colour that few nodes have something is seen all the same."""
    counts = Counter(tone(node.judgement.verdict) for node in nodes)
    least = 0.4
    whole = sum(max(least, 100 * number / len(nodes)) for number in counts.values()) or 1.0
    start = 0.0
    for colour in ("bad", "warn", "plain", "good"):
        if number := counts[colour]:
            width = 100 * max(least, 100 * number / len(nodes)) / whole
            yield Share(colour, start, width)
            start += width
