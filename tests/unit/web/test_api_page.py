"""docs/api.md names the keys that the API's description has, no less and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.paths import ROOT
from tpuwatch.web.openapi import SERVED, openapi

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
SCHEMAS = openapi()["components"]["schemas"]
HEADINGS = {name: name for name in ("Status", "Node", "Event", "Launch", "Restarts", "Goodput")} | {
    "Finding": "KnownFinding",
    "Queued resource": "JudgedQueuedResource",
}
ELSEWHERE = {
    "tune",
    "goodput",
    "last_launch",
    "node",
    "queued_resources",
}  # objects that have a section, or a page, of their own


def rows(heading: str) -> list[tuple[str, str]]:
    """Both cells of each row of the table under a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [(row[1], row[2]) for row in re.finditer(r"^\| (`.*?) \| ?(.*) \|$", section, re.MULTILINE)]


def named(text: str) -> list[str]:
    return [word.removesuffix("[]") for word in re.findall(r"`([a-z_]+(?:\[\])?)`", text)]


def properties(schema: dict[str, Any]) -> dict[str, Any]:
    """Its keys without the seconds of times, each with its schema."""
    found = schema.get("properties", {})
    return {key: one for key, one in found.items() if key.removesuffix("_epoch") == key or key[:-6] not in found}


def below(schema: dict[str, Any]) -> Iterator[str]:
    """All keys of the objects in a value."""
    if "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rpartition("/")[2]]
    for key, one in properties(schema).items():
        yield key
        yield from below(one)
    for one in schema.get("anyOf", [schema["items"]] if "items" in schema else ()):
        yield from below(one)


@pytest.mark.parametrize("heading", HEADINGS)
def test_every_key_has_its_row_and_no_other(heading: str) -> None:
    documented = [key for cell, _ in rows(heading) for key in named(cell)]
    assert sorted(documented) == sorted(properties(SCHEMAS[HEADINGS[heading]]))


@pytest.mark.parametrize("heading", HEADINGS)
def test_the_keys_of_objects_are_in_their_row(heading: str) -> None:
    described = properties(SCHEMAS[HEADINGS[heading]])
    for cell, text in rows(heading):
        for key in set(named(cell)) - (ELSEWHERE if heading == "Status" else set()):
            assert set(below(described[key])) <= set(named(text)), key


def test_every_document_has_its_row() -> None:
    head = PAGE.partition("| command |")[0]
    assert set(re.findall(r"^\| `([\w.]+)` \|", head, re.MULTILINE)) == set(SERVED)
