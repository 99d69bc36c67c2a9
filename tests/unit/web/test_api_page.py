"""docs/api.md names the keys that there are, no less and no more."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from tests.paths import ROOT
from tests.unit.restart.policy_scenes import situation
from tests.unit.restart.records import full_record
from tests.unit.web import samples
from tests.unit.web.samples import NOW
from tpuwatch.model.documents.logs import EventDocument, KnownFindingDocument, LaunchDocument
from tpuwatch.model.documents.nodes import NodeDocument
from tpuwatch.model.signals import Peer
from tpuwatch.model.status import RestartsStatus
from tpuwatch.restart.policy.policy import decide
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.web.routes import Api, restarts_document

PAGE = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
FREE = {"details", "environment", "faults", "labels"}  # their keys are names and words of others
ELSEWHERE = {"tune", "last_launch", "node"}  # objects that have a section, or a page, of their own


def rows(heading: str) -> list[tuple[str, str]]:
    """Both cells of each row of the table under a heading."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    return [(row[1], row[2]) for row in re.finditer(r"^\| (`.*?) \| ?(.*) \|$", section, re.MULTILINE)]


def named(text: str) -> list[str]:
    return [word.removesuffix("[]") for word in re.findall(r"`([a-z_]+(?:\[\])?)`", text)]


def keys(document: Mapping[str, Any]) -> list[str]:
    """Its keys without the seconds of times."""
    return [key for key in document if not (key.endswith("_epoch") and key.removesuffix("_epoch") in document)]


def below(value: object) -> Iterator[str]:
    """All keys of the objects in a value."""
    if isinstance(value, Mapping):
        for key in keys(value):
            yield key
            yield from () if key in FREE else below(value[key])
    elif isinstance(value, list):
        for one in value:
            yield from below(one)


RESTARTS = RestartsStatus(
    acts=True,
    records=[full_record()],
    decisions=[("train-1", decide(situation(), PolicySettings()))],
)
DOCUMENTS: dict[str, dict[str, Any]] = {
    "Status": samples.as_json(Api(samples.SampleView(samples.watching())).status("")),
    "Node": samples.as_json(NodeDocument.of(samples.node(peer=Peer(NOW, silent_since=NOW)))),
    "Event": samples.as_json(EventDocument.of(samples.event())),
    "Finding": samples.as_json(KnownFindingDocument.known(samples.finding(), None)),
    "Launch": samples.as_json(LaunchDocument.of(samples.launch())),
    "Restarts": samples.as_json(restarts_document(RESTARTS, NOW, 10)),
}


@pytest.mark.parametrize("heading", DOCUMENTS)
def test_every_key_has_its_row_and_no_other(heading: str) -> None:
    documented = [key for cell, _ in rows(heading) for key in named(cell)]
    assert sorted(documented) == sorted(keys(DOCUMENTS[heading]))


@pytest.mark.parametrize("heading", DOCUMENTS)
def test_the_keys_of_objects_are_in_their_row(heading: str) -> None:
    document = DOCUMENTS[heading]
    for cell, text in rows(heading):
        for key in set(named(cell)) - FREE - (ELSEWHERE if heading == "Status" else set()):
            assert set(below(document[key])) <= set(named(text)), key


def test_every_document_has_its_row() -> None:
    documented = {cell.strip("`") for cell, _ in _first_table()}
    served = {path.removeprefix("/api/v1/") for path in Api(samples.SampleView()).routes}
    assert documented == served


def _first_table() -> list[tuple[str, str]]:
    head = PAGE.partition("| command |")[0]
    return [(row[1], row[2]) for row in re.finditer(r"^\| (`[\w.]+`) \| ?(.*) \|$", head, re.MULTILINE)]
