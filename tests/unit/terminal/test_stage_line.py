from __future__ import annotations

import io
import sys

import pytest

from tpuwatch.core.clock import ManualClock
from tpuwatch.terminal.stage_line import StageLine


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_the_stage_is_shown_at_most_once_a_second_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    shown, clock = Terminal(), ManualClock()
    monkeypatch.setattr(sys, "stderr", shown)
    line = StageLine("v5e-1", monotonic=clock.monotonic)
    for stage in ("import", "compile", "compute"):
        line.show(stage)
        clock.advance(0.6)
    line.clear()
    assert shown.getvalue() == "\r\x1b[Kv5e-1: import, 0 s\r\x1b[Kv5e-1: compute, 1 s\r\x1b[K"


def test_nothing_is_written_to_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = io.StringIO()
    monkeypatch.setattr(sys, "stderr", shown)
    line = StageLine()
    line.show("import")
    line.clear()
    assert not shown.getvalue()
