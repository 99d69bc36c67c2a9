"""What the status page is put together from: sections, tables, tags, times, steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.export.markup import Markup, element, join
from tpuwatch.jsontext import iso
from tpuwatch.units import format_seconds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.model import Remedy


def section(title: str, content: Markup, tone: str = "plain") -> Markup:
    """A part of the page under a title."""
    return element("section", element("h2", title), content, class_=tone)


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], empty: str) -> Markup:
    """A table; on a narrow screen each row becomes a block whose cells carry their column's name."""
    body = [
        element("tr", *(element("td", cell, data_name=name) for name, cell in zip(columns, row, strict=True)))
        for row in rows
    ]
    if not body:
        return element("p", empty, class_="quiet")
    head = element("tr", *(element("th", name) for name in columns))
    return element("table", element("thead", head), element("tbody", *body))


def tag(words: str, tone: str) -> Markup:
    """A few words in a frame, in the colour of `tone`: good, plain, warn or bad."""
    return element("span", words, class_=f"tag {tone}")


def since(epoch: float | None, now: float) -> str:
    """When something last happened."""
    return "never" if epoch is None else moment(epoch, now)


def moment(epoch: float, now: float) -> Markup:
    """A time as an age, with the exact time for who points at it."""
    exact = iso(epoch)
    if exact is None:
        return join("at an unknown time")
    age = now - epoch
    words = clock(epoch) if age < 0 else "just now" if age < 1 else f"{format_seconds(age)} ago"
    return element("time", words, datetime=exact, title=exact)


def clock(epoch: float) -> str:
    """A time as date and time of day."""
    exact = iso(epoch)
    return f"{exact[:10]} {exact[11:19]} UTC" if exact else "an unknown time"


def steps(remedy: Sequence[Remedy]) -> list[Markup]:
    """What to do, step by step; nothing where no step is known."""
    return [element("h3", "What to do"), element("ol", *map(_step, remedy))] if remedy else []


def _step(step: Remedy) -> Markup:
    pieces = step.do.split("`")  # what stands between two backticks is a command or a setting
    do = [element("code", piece) if index % 2 else piece for index, piece in enumerate(pieces)]
    if not step.source.startswith(("https://", "http://")):
        return element("li", *do)
    return element("li", *do, " ", element("a", "Source", href=step.source, rel="noopener noreferrer"))
