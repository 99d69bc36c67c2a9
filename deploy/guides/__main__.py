"""`python -m deploy.guides`: docs/guides.md, from the table of items, to standard output."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Final

from deploy.guides.table import STATUSES, load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from deploy.guides.table import Item

_TOP: Final = """\
# The guides, item by item

What Google's guides for TPUs ask for or say, and what of tpuwatch serves each item: a cause of
[`tpuwatch diagnose`](causes.md) with its rule, a finding of [`tpuwatch advise`](advise.md), a command, an
[alert](alerts.md), or a setting. The sections are named by what they are about; the guides' own headings change.

`make guides` writes this page from `deploy/guides/items.toml`. The tests of the last column show what a row says. Each
error message of a guide is tried as it stands, in today's wording, with the prefixes of logs and launchers, wrapped at
60 and at 80 columns, and at the end of a traceback.

| status | items | meaning |
|---|---|---|
"""
_TITLES: Final = "| item | what it asks for or says | status | served by | tests |"
_MEANINGS: Final = {
    "served": "tpuwatch does or says what the item asks for",
    "partly": "the row says what is missing",
    "not served": "tpuwatch has nothing for it",
    "not by software": "a fact, or a choice of people",
}


def page() -> str:
    """The page in Markdown."""
    guides, items = load()
    count = Counter(item.status for item in items)
    rows = "".join(f"| {status} | {count[status]} | {_MEANINGS[status]} |\n" for status in STATUSES)
    return _TOP + rows + "".join(_guide(guides[letter], of) for letter, of in groupby(items, lambda one: one.guide))


def _guide(title: str, items: Iterable[Item]) -> str:
    parts = [f"\n## {title}\n"]
    for section, rows in groupby(items, lambda one: one.section):
        parts.append(f"\n### {section}\n\n{_TITLES}\n|---|---|---|---|---|\n")
        parts += [_row(item) for item in rows]
    return "".join(parts)


def _row(item: Item) -> str:
    cells = (item.id, item.asks, item.status, " ".join(_served_by(item)), ", ".join(_files(item)))
    return "| " + " | ".join(cells) + " |\n"


def _served_by(item: Item) -> Iterator[str]:
    kinds = (
        ("diagnose", (f"`{cause}`" for cause in item.causes)),
        ("rule", (f"`{rule}`" for rule in item.rules)),
        ("advise", (f"`{finding}`" for finding in item.findings)),
        ("command", (f"`tpuwatch {command}`" for command in item.commands)),
        ("alert", (f"[{alert}](runbooks/{alert}.md)" for alert in item.alerts)),
        ("setting", (f"`{setting}`" for setting in item.settings)),
    )
    named = [f"{kind} {', '.join(names)}" for kind, given in kinds if (names := list(given))]
    if named:
        yield "; ".join(named) + "."
    if item.note:
        yield item.note


def _files(item: Item) -> list[str]:
    """The files of its tests, each once."""
    return list(dict.fromkeys(f"`{test.split('::')[0]}`" for test in item.tests))


if __name__ == "__main__":
    sys.stdout.write(page())
