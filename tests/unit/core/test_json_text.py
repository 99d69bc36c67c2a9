from __future__ import annotations

import json

import pytest

from tpuwatch.core.json_text import dumps, iso, parse_time
from tpuwatch.model.causes import Cause

NOW = 1_795_182_254.25


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("half a pair \ud800 and a stray byte \udcff", "half a pair ? and a stray byte ?"),
        (float("nan"), None),
        (float("inf"), None),
        (b"\x00\xff", "00ff"),
        (Cause.HANG, "hang"),
        ({1: ("a", {"b": float("-inf")})}, {"1": ["a", {"b": None}]}),
        (10**30, 10**30),
        ("\x00\x1b[31m\u2028", "\x00\x1b[31m\u2028"),
        (3 + 4j, "(3+4j)"),
    ],
)
def test_whatever_it_holds_it_is_valid_json(value: object, shown: object) -> None:
    text = dumps({"value": value})
    assert text.isascii()
    assert json.loads(text) == {"value": shown}


@pytest.mark.parametrize(
    ("epoch", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (NOW, "2026-11-20T13:44:14.250Z"),
        (None, None),
        (1e30, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_times_are_utc_or_nothing(epoch: float | None, shown: str | None) -> None:
    assert iso(epoch) == shown


@pytest.mark.parametrize(
    "text",
    [
        "1795182254.25",
        "2026-11-20T13:44:14.250Z",
        "2026-11-20T13:44:14.250",
        "2026-11-20T14:44:14.250+01:00",
        "2026-11-20 13:44:14.250",
    ],
)
def test_times_are_read_in_each_usual_form(text: str) -> None:
    assert parse_time(text) == NOW


@pytest.mark.parametrize("text", ["", "yesterday", "nan", "inf", "2026-13-40", "2026-11-20T13:44:14 01:00", "1_"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=" is no time: "):
        parse_time(text)


def test_strings_are_written_as_asked_and_keys_as_they_are() -> None:
    document = {"a": ["b", {"c": ("d", 1)}], "cause": Cause.HANG}
    assert json.loads(dumps(document, text=str.upper)) == {"a": ["B", {"c": ["D", 1]}], "cause": "HANG"}
