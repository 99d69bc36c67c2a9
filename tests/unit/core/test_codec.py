"""Dataclasses as JSON documents and back."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any

import pytest

from tpuwatch.core.codec import DocumentError, Time, Words, decode, encode, like, schemas


class Colour(str, Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartDocument:
    name: str
    size: int = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainDocument(PartDocument):
    parts: tuple[PartDocument, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeDocument(PartDocument):
    at: Time
    since: Time | None = None
    said: Annotated[str, Words(Colour)] = "red"
    all_said: tuple[Annotated[str, Words(Colour)], ...] = ()
    known: Colour = Colour.RED
    share: float | None = None
    is_good: bool = True
    key: bytes = b""
    parts: tuple[PartDocument, ...] = ()
    first: PartDocument | None = None
    counts: Mapping[str, int] | None = None
    details: Any = None


WHOLE = WholeDocument(
    name="a",
    at=1_795_182_254.25,
    said="blue",
    all_said=("red",),
    known=Colour.BLUE,
    share=0.5,
    key=b"\x01\xff",
    parts=(PartDocument(name="b"), PartDocument(name="c", size=0)),
    first=PartDocument(name="d"),
    counts={"x": 1},
    details={"anything": [1, None]},
)
AS_JSON = {
    "name": "a",
    "size": 7,
    "at": "2026-11-20T13:44:14.250Z",
    "at_epoch": 1_795_182_254.25,
    "since": None,
    "since_epoch": None,
    "said": "blue",
    "all_said": ["red"],
    "known": "blue",
    "share": 0.5,
    "is_good": True,
    "key": "01ff",
    "parts": [{"name": "b", "size": 7}, {"name": "c", "size": 0}],
    "first": {"name": "d", "size": 7},
    "counts": {"x": 1},
    "details": {"anything": [1, None]},
}


def test_a_document_is_written_in_the_order_of_its_fields_and_read_back() -> None:
    assert encode(WHOLE) == AS_JSON
    assert list(encode(WHOLE)) == list(AS_JSON)
    assert decode(WholeDocument, AS_JSON) == WHOLE


def test_what_is_missing_has_its_default_and_what_is_not_known_is_ignored() -> None:
    read = decode(WholeDocument, {"name": "a", "at_epoch": 5, "at": "whatever it says", "new": {"of": "a newer one"}})
    assert read == WholeDocument(name="a", at=5)


@pytest.mark.parametrize(
    ("change", "message"), [({"new": 1}, "new: is not known"), ({"parts": [{"name": "b", "old": 1}]}, "parts[0].old")]
)
def test_what_is_not_known_is_refused_where_it_is_read_strictly(change: dict[str, Any], message: str) -> None:
    assert decode(PartDocument, {"name": "a"}, strict=True) == PartDocument(name="a")
    with pytest.raises(DocumentError, match=f"^{re.escape(message)}"):
        decode(PlainDocument, {"name": "a", **change}, strict=True)


def test_a_word_of_a_newer_version_stays_what_it_is() -> None:
    assert decode(WholeDocument, {**AS_JSON, "said": "green"}).said == "green"


def test_a_size_that_a_log_says_may_be_any() -> None:
    assert decode(PartDocument, {"name": "a", "size": 10**30}) == PartDocument(name="a", size=10**30)


def test_whole_numbers_are_integers_however_they_are_written() -> None:
    assert decode(PartDocument, {"name": "a", "size": 5.0}) == PartDocument(name="a", size=5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"name": 7}, "name: is no string, but 7"),
        ({"name": None}, "name: is no string, but null"),
        ({"size": True}, "size: is no integer, but True"),
        ({"size": 1.5}, "size: is no integer, but 1.5"),
        ({"size": 10**301}, f"size: is no integer, but 1{'0' * 39}"),
        ({"share": float("nan")}, "share: is no number, but nan"),
        ({"share": float("inf")}, "share: is no number, but inf"),
        ({"share": "0.5"}, "share: is no number, but '0.5'"),
        ({"is_good": 1}, "is_good: is no boolean, but 1"),
        ({"at_epoch": None}, "at_epoch: is no number, but null"),
        ({"at_epoch": 1e12}, "at_epoch: is no time, but 1000000000000.0"),
        ({"known": "green"}, "known: is no colour, but 'green'"),
        ({"key": "0g"}, "key: is no hexadecimal text, but '0g'"),
        ({"parts": {"name": "b"}}, "parts: is no array, but dict"),
        ({"parts": [{"name": "b"}, {"size": 1}]}, "parts[1].name: is missing"),
        ({"parts": [[]]}, "parts[0]: is no object, but list"),
        ({"first": {"name": ["x"]}}, "first.name: is no string, but list"),
        ({"counts": {"x": "y"}}, "counts.x: is no integer, but 'y'"),
        ({"counts": []}, "counts: is no object, but list"),
    ],
)
def test_a_value_of_another_type_is_refused_with_its_path(change: dict[str, Any], message: str) -> None:
    with pytest.raises(DocumentError, match=f"^{re.escape(message)}$"):
        decode(WholeDocument, {**AS_JSON, **change})


def test_a_document_like_another_thing_has_its_words_as_text() -> None:
    @dataclass
    class Thing:
        name: str = "a"
        size: int = 3
        at: float = 5.0
        since: float | None = None
        said: Colour = Colour.BLUE
        all_said: frozenset[Colour] = frozenset({Colour.RED})
        known: Colour = Colour.BLUE
        share: None = None
        is_good: bool = True
        parts: tuple[()] = ()
        first: None = None
        counts: None = None
        details: None = None

    made = like(WholeDocument, Thing(), key=b"k")
    assert (type(made.said), made.said, made.all_said, made.known) == (str, "blue", ("red",), Colour.BLUE)
    assert made.key == b"k"


def test_the_schema_says_what_is_written() -> None:
    found = schemas(WholeDocument)
    assert list(found) == ["Whole", "Part"]
    whole = found["Whole"]
    assert list(whole["properties"]) == list(AS_JSON) == whole["required"]
    assert whole["properties"]["since"] == {"type": ["string", "null"], "format": "date-time"}
    assert whole["properties"]["at_epoch"] == {"type": "number"}
    assert whole["properties"]["said"] == {"type": "string", "enum": ["red", "blue"]}
    assert whole["properties"]["parts"] == {"type": "array", "items": {"$ref": "#/components/schemas/Part"}}
    assert whole["properties"]["first"] == {"anyOf": [{"$ref": "#/components/schemas/Part"}, {"type": "null"}]}
    assert whole["properties"]["details"] == {}


def test_a_field_that_json_cannot_have_is_found_when_the_form_is_made() -> None:
    @dataclass
    class Wrong:
        what: set[int]

    with pytest.raises(TypeError, match=r"a document has no set\[int\]"):
        encode(Wrong({1}))
