"""Tests of the driver whose ledger is removed, or put back from a copy, while it is at it."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.standins.memory_ledger import MemoryLedger
from tests.unit.restart.records import written
from tests.unit.restart.site import Machine, Site
from tests.unit.restart.test_driver import Watched
from tpuwatch.core.errors import ConflictError, LedgerError
from tpuwatch.model.restart import Lease, Phase, RestartRecord
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.workflow.types import PresentEvidence, Standing, Within


@pytest.mark.parametrize("copy", [False, True], ids=["removed", "put back from a copy"])
def test_a_ledger_that_is_lost_in_the_middle_leaves_no_node_stopped(
    site: Site, tmp_path: Path, copy: bool, caplog: pytest.LogCaptureFixture
) -> None:
    ledger = SqliteLedger(tmp_path, site.clock)
    ledger.write(site.record, 0)
    before = ledger.path.read_bytes()

    def lose(_: float) -> bool:
        if site.node.state == "STOPPING":
            ledger.path.write_bytes(before) if copy else ledger.path.unlink(missing_ok=True)
        return False

    site.ending = lose
    assert site.driver(ledger).drive().phase is Phase.DONE
    assert (site.node.state, site.count("stop"), site.count("start")) == ("READY", 1, 1)
    assert "has lost how far the restart of node train-1 is" in caplog.text


@pytest.mark.parametrize("phase", [Phase.REQUESTED, Phase.INTENT])
def test_who_has_gone_on_from_a_copy_is_fought_only_before_he_calls_anything(
    site: Site, tmp_path: Path, phase: Phase
) -> None:
    ledger = SqliteLedger(tmp_path, site.clock)
    ledger.write(site.record, 0)
    first = written(ledger).version
    before, other = ledger.path.read_bytes(), replace(site.record, phase=phase, lease=Lease("elsewhere/b/1/2/r", 60.0))
    copies = [before]

    def lose(_: float) -> bool:
        if site.node.state == "STOPPING" and copies:
            ledger.path.write_bytes(copies.pop())
            ledger.write(other, first)
        return False

    site.ending = lose
    if phase is Phase.REQUESTED:
        assert site.driver(ledger).drive().phase is Phase.DONE
        return
    with pytest.raises(ConflictError, match="taken over by process 1 on elsewhere"):
        site.driver(ledger).drive()
    assert written(ledger).record == other


def test_a_record_that_was_removed_before_anything_was_done_is_let_go(site: Site) -> None:
    watched = Watched(site)

    def remove(record: RestartRecord) -> None:
        if record.phase is Phase.INTENT:
            site.ledger = MemoryLedger()

    watched.before_write = remove
    with pytest.raises(LedgerError, match="nothing to carry on"):
        watched.drive()
    assert site.count("stop") == site.count("start") == 0


PROVEN = PresentEvidence(Standing.HOLDS, within=Within.ANSWERS, heard="its own tpuwatch answers")


@pytest.mark.parametrize("signals", [(), ("cloud", "runtime")], ids=["operator", "daemon"])
@pytest.mark.parametrize("phase", [Phase.INTENT, Phase.STOPPING, Phase.STOPPED, Phase.STARTING, Phase.VERIFYING])
@pytest.mark.parametrize("copied", [Phase.REQUESTED, Phase.INTENT, Phase.STOPPING])
def test_a_copy_that_another_driver_takes_from_a_suspended_one_stops_the_node_no_second_time(
    site: Site, phase: Phase, copied: Phase, signals: tuple[str, ...]
) -> None:
    """The copy is an older record of the suspended driver, whose lease has run out. Both drive on in the end."""
    site.ledger.write(replace(site.record, signals=signals), 1)
    watched, copies = Watched(site), list[RestartRecord]()
    other = site.driver(here=Machine("vm-2"), judge_again=lambda _: PROVEN)

    def keep(stored: Stored) -> None:
        if stored.record.phase is copied and not copies:
            copies.append(stored.record)
        if stored.record.phase is phase and copies and not other.has_held:
            site.ledger.write(copies[0], stored.version)
            assert not other.drive().open  # which takes longer than a lease

    watched.after_write = keep
    with contextlib.suppress(ConflictError):
        watched.drive(judge_again=lambda _: PROVEN)
    assert other.has_held or phase is Phase.INTENT
    assert (site.record.phase, site.node.state, site.count("stop")) == (Phase.DONE, "READY", 1)


def test_a_file_that_is_put_back_gives_no_version_twice(tmp_path: Path, site: Site) -> None:
    ledger = SqliteLedger(tmp_path, site.clock)
    first = ledger.write(site.record, 0)
    before = ledger.path.read_bytes()
    ours = ledger.write(site.record, first.version)
    ledger.path.write_bytes(before)
    site.clock.advance(1)
    theirs = ledger.write(site.record, first.version)
    assert theirs.version != ours.version
    with pytest.raises(ConflictError):
        ledger.write(site.record, ours.version)
