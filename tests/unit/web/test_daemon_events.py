"""Events over HTTP are those of the store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.standins.http_daemon import answering
from tests.unit.web import samples
from tests.unit.web.samples import SampleView
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Place
from tpuwatch.web import MAX_LIMIT, DaemonEvents

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_they_are_read_as_they_were_stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stored = [samples.event(id=4), samples.event(id=7, time=None, pid=None, history=True, places=(PLACE,))]
    view = SampleView(stored=stored)
    with answering(view, tmp_path, monkeypatch) as address:
        events = DaemonEvents(address)
        assert events.last_id() == 7
        assert events.events() == stored
        assert events.events(newest_first=True) == stored[::-1]
        view.asked.clear()
        events.events(since=5.5, cause=Cause.HANG, history=False, after_id=3, limit=100_000)
    assert view.asked == [
        {"since": 5.5, "cause": Cause.HANG, "history": False, "after_id": 3, "limit": MAX_LIMIT},
    ]


PLACE = Place(b"", "/jobs/a.log", 7, 1.5, "E")
