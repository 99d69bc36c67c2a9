from __future__ import annotations

import pytest

from tests.unit.web import samples
from tpuwatch.model.causes import Cause
from tpuwatch.model.documents.logs import DiagnosisDocument, EventDocument
from tpuwatch.model.launches import Outcome


def test_an_event_carries_all_that_is_known_of_it() -> None:
    document = samples.as_json(EventDocument.of(samples.event(history=True)))
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
        "repeats": 0,
        "since": None,
        "since_epoch": None,
        "spread": {},
        "places": [],
    }


def test_a_diagnosis_has_the_promised_form() -> None:
    launch = samples.launch(outcome=Outcome.FAILED, cause=Cause.HBM_OOM_COMPILE, init_seconds=None)
    document = samples.as_json(DiagnosisDocument.of([samples.finding(count=3)], [launch]))
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
