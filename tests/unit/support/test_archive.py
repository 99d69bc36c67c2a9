"""How much the archive holds: what is cut, what is left out, and what the manifest reports of it."""

from __future__ import annotations

import io
import json
import tarfile
from typing import Any

import pytest

from tpuwatch.support import Redactor, archive
from tpuwatch.support.archive import Archive

FILE, ALL = 1000, 1500


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> Archive:
    """An archive with small bounds: of a file, and of all."""
    monkeypatch.setattr(archive, "_MAX_FILE", FILE)
    monkeypatch.setattr(archive, "MAX_BYTES", ALL)
    return Archive("support", Redactor(), 1_790_000_000.0)


def files(packed: Archive) -> dict[str, bytes]:
    with tarfile.open(fileobj=io.BytesIO(packed.pack()), mode="r:gz") as tar:
        found = {member.name: tar.extractfile(member) for member in tar.getmembers()}
        return {name.removeprefix("support/"): file.read() for name, file in found.items() if file is not None}


def described(packed: Archive) -> dict[str, Any]:
    return {one["name"]: one["cut"] for one in packed.manifest()["files"]}


def lines(number: int) -> str:
    return "".join(f"line {at:04}\n" for at in range(number))


def test_of_a_long_text_the_end_is_kept_in_whole_lines(small: Archive) -> None:
    small.add_text("short", "a text", lines(20))
    small.add_text("long", "a text", lines(300))
    held = files(small)
    assert held["short"].decode() == lines(20)
    assert lines(300).encode().endswith(held["long"])
    assert held["long"].startswith(b"line ")
    assert 900 < len(held["long"]) <= FILE
    assert described(small) == {"short": None, "long": "the end of it"}


def test_all_together_are_bounded_too(small: Archive) -> None:
    for name in "abc":
        small.add_text(name, "a text", lines(300))
    held = files(small)
    assert sum(len(held[name]) for name in "abc") <= ALL
    assert [len(held[name]) > 400 for name in "abc"] == [True, True, False]


def test_of_a_long_document_the_first_entries_of_each_list_are_kept(small: Archive) -> None:
    small.add_json("events", "a document", {"events": list(range(2000)), "total": 2000})
    document = json.loads(files(small)["events"])
    kept = len(document["events"])
    assert document == {"events": list(range(kept)), "total": 2000}
    assert kept > 50
    assert described(small) == {"events": f"{kept} entries of each list at most"}


def test_a_document_that_cannot_be_cut_is_reported_as_missing(small: Archive) -> None:
    small.add_json("one", "a document", {"text": "step " * FILE})
    assert described(small) == {}
    assert small.manifest()["missing"] == [{"name": "one", "what": "a document", "why": "it is too large"}]
    assert files(small).keys() == {"manifest.json"}


def test_what_is_cut_off_is_not_searched_for_secrets(small: Archive) -> None:
    small.add_text("long", "a text", "password=first-secret\n" + lines(1000) + "password=second-secret\n")
    assert b"secret" not in files(small)["long"]
    assert small.manifest()["taken_out"] == {"secrets": 1}
