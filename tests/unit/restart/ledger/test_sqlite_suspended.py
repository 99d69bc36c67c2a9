"""A process that is suspended in the middle of a write holds up no reader, and is named to those who would write."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.unit.restart.records import TARGET, record, written
from tests.unit.restart.site import Site
from tpuwatch.core.clock import ManualClock
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Phase
from tpuwatch.restart.ledger.sqlite import SqliteLedger

WRITER = """
import os, signal, sys

os.setpgrp()  # a group of its own, which has its parent in this session: else SIGTSTP would be ignored
from pathlib import Path
from tests.unit.restart.records import record
from tpuwatch.core.clock import SystemClock
from tpuwatch.restart.ledger.sqlite import SqliteLedger

class Suspended(SqliteLedger):
    def _replace(self, *given):
        version = super()._replace(*given)
        os.kill(os.getpid(), getattr(signal, sys.argv[2]))
        return version

print(Suspended(Path(sys.argv[1]), SystemClock()).write(record("other"), 0).version, flush=True)
"""


@contextmanager
def suspended(state: Path, by: str) -> Iterator[subprocess.Popen[str]]:
    """A process that gets this signal within a write, when it has stopped."""
    words = [sys.executable, "-c", WRITER, str(state), by]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield process
        finally:
            process.send_signal(signal.SIGCONT)
            process.wait(30)


def test_others_read_and_are_told_who_keeps_them_from_writing(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path, ManualClock(), busy_seconds=0.1)
    stored = ledger.write(record(), 0)
    with suspended(tmp_path, "SIGSTOP") as process:
        assert ledger.read(TARGET) == stored
        assert len(SqliteLedger(tmp_path, ManualClock(), busy_seconds=0.1).records()) == 1
        with pytest.raises(LedgerError) as raised:
            ledger.write(record(phase=Phase.INTENT), stored.version)
        assert f"it is being written by process {process.pid} (" in str(raised.value)
        assert f"which is suspended: let it go on with `kill -CONT {process.pid}`" in str(raised.value)
        assert ledger.read(TARGET) == stored
    assert ledger.write(record(phase=Phase.INTENT), stored.version).version
    assert len(ledger.records()) == 2


def test_ctrl_z_waits_for_the_end_of_a_write(tmp_path: Path) -> None:
    ledger = SqliteLedger(tmp_path, ManualClock(), busy_seconds=0.1)
    with suspended(tmp_path, "SIGTSTP"):
        assert len(ledger.records()) == 1
        assert ledger.write(record(), 0) == ledger.read(TARGET)


def test_a_driver_whose_ledger_is_locked_for_ever_starts_what_it_stopped(
    site: Site, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = SqliteLedger(tmp_path, site.clock, busy_seconds=0.01)
    ledger.write(site.record, 0)
    held: list[object] = []

    def suspend(_: float) -> bool:
        if site.node.state == "STOPPING" and not held:
            context = suspended(tmp_path, "SIGSTOP")
            context.__enter__()
            held.append(context)
        return False

    site.ending = suspend
    try:
        with pytest.raises(LedgerError, match=r"could not be recorded: .* which is suspended"):
            site.driver(ledger).drive()
    finally:
        held[0].__exit__(None, None, None)  # type: ignore[attr-defined]
    assert (site.node.state, site.count("stop"), site.count("start")) == ("READY", 1, 1)
    assert "NODE IS STOPP" in caplog.text
    stored = written(ledger)
    assert stored.record.phase in (Phase.INTENT, Phase.STOPPING)
    site.ending = lambda _: False
    assert site.driver(ledger).drive(free=stored.version).phase is Phase.DONE  # whoever is next finds that it runs
    assert (site.count("stop"), site.count("start")) == (1, 1)
