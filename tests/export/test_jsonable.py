from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.export import samples
from tpuwatch.export import jsonable
from tpuwatch.model import Cause, Outcome


def test_an_event_carries_all_that_is_known_of_it() -> None:
    document = json.loads(jsonable.dumps(jsonable.event(samples.event(history=True))))
    assert document == {
        "id": 7,
        "cause": "hbm_oom_compile",
        "rule": "hbm-oom-compile",
        "time": "2026-11-20T13:43:14.250Z",
        "time_epoch": 1795182194.25,
        "observed": "2026-11-20T13:43:14.350Z",
        "observed_epoch": pytest.approx(1795182194.35),
        "severity": "E",
        "pid": 4242,
        "file": samples.LOG,
        "offset": 1234,
        "text": samples.event().text,
        "details": {"used_bytes": 28 * 2**30, "limit_bytes": 15.75 * 2**30},
        "history": True,
        "key": "0102",
    }


def test_a_diagnosis_has_the_promised_form() -> None:
    launch = samples.launch(outcome=Outcome.FAILED, cause=Cause.HBM_OOM_COMPILE, init_seconds=None)
    document = jsonable.diagnosis([samples.finding(count=3)], [launch])
    (finding,) = document["findings"]
    assert set(finding) == {"cause", "count", "summary", "first", "last", "details", "remedy"}
    assert (finding["cause"], finding["count"], finding["first"]["line"]) == ("hbm_oom_compile", 3, 17)
    assert {"file", "line", "time", "text"} <= set(finding["first"])
    assert finding["remedy"][0] == {
        "do": "Use a smaller batch, or shard the model over more chips.",
        "source": "https://docs.example.org/hbm",
    }
    (shown,) = document["launches"]
    assert (shown["pid"], shown["init_seconds"], shown["premapped_bytes"]) == (4242, None, 4 * 2**30)
    assert (shown["outcome"], shown["cause"]) == ("failed", "hbm_oom_compile")
    assert (shown["started"], shown["started_epoch"]) == ("2026-11-20T13:42:14.250Z", samples.NOW - 120)


def test_an_event_without_a_time_of_its_own_says_so() -> None:
    document = jsonable.finding(samples.finding(samples.event(time=None)))
    assert (document["first"]["time"], document["first"]["time_epoch"]) == (None, None)


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
    text = jsonable.dumps({"value": value})
    assert text.isascii()
    assert json.loads(text) == {"value": shown}


@pytest.mark.parametrize(
    ("epoch", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (samples.NOW, "2026-11-20T13:44:14.250Z"),
        (None, None),
        (1e30, None),
        (float("nan"), None),
        (float("inf"), None),
    ],
)
def test_times_are_utc_or_nothing(epoch: float | None, shown: str | None) -> None:
    assert jsonable.iso(epoch) == shown


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
    assert jsonable.parse_time(text) == samples.NOW


@pytest.mark.parametrize("text", ["", "yesterday", "nan", "inf", "2026-13-40", "2026-11-20T13:44:14 01:00", "1_"])
def test_anything_else_is_no_time(text: str) -> None:
    with pytest.raises(ValueError, match=" is no time: "):
        jsonable.parse_time(text)


def test_nothing_heavy_is_imported() -> None:
    code = "import sys, tpuwatch.export.jsonable; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30).stdout
    assert {"prometheus_client", "pydantic", "watchdog", "http", "socketserver"}.isdisjoint(loaded.split())
