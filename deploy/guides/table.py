"""The items of Google's guides: deploy/guides/items.toml as data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import tomli

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = Path(__file__).with_name("items.toml")
SERVED, PARTLY, NOT_SERVED, NOT_BY_SOFTWARE = "served", "partly", "not served", "not by software"
STATUSES: Final = (SERVED, PARTLY, NOT_SERVED, NOT_BY_SOFTWARE)


@dataclass(frozen=True, slots=True)
class Message:
    """An error message of a guide, and what the finding must say. `left_out`: the forms without sense, with reasons."""

    text: str
    cause: str
    words: tuple[str, ...]
    now: str = ""
    before: str = ""
    says: tuple[str, ...] = ()
    left_out: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """A request or statement of a guide, and what of tpuwatch serves it."""

    id: str
    section: str
    asks: str
    status: str
    causes: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    findings: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    alerts: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()
    note: str = ""
    tests: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    no_message: str = ""
    message: tuple[Message, ...] = ()

    @property
    def guide(self) -> str:
        """The guide's letter."""
        return self.id[0]


def load() -> tuple[dict[str, str], tuple[Item, ...]]:
    """The guides' titles by letter, and all items in their order."""
    table = tomli.loads(FILE.read_text(encoding="utf-8"))
    items = [_without_lists(one) for one in table["item"]]
    for one in items:
        one["message"] = tuple(Message(**_without_lists(message)) for message in one.get("message", ()))
    return table["guides"], tuple(Item(**one) for one in items)


def _without_lists(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}
