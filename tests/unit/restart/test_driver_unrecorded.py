"""Tests of the driver whose ledger can no longer be written: it starts what may be down, and stops nothing."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.standins.memory_ledger import MemoryLedger
from tests.unit.restart.records import TARGET, written
from tests.unit.restart.site import Site
from tests.unit.restart.test_driver import Watched
from tpuwatch.core.errors import LedgerError
from tpuwatch.model.restart import Phase, RestartRecord
from tpuwatch.restart.driver import LEASE_SECONDS
from tpuwatch.restart.ledger.base import Stored
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.sim.cloud.faults import InjectedFault


class Broken(Watched):
    """From the write with a number on nothing can be written, until the test allows it again."""

    def __init__(self, site: Site, number: int) -> None:
        super().__init__(site)
        self.number, self.works, self.tried = number, False, 0
        self.before_write = self.refuse

    def refuse(self, _: RestartRecord) -> None:
        self.tried += 1
        if self.tried > self.number and not self.works:
            raise LedgerError("there is no room")


def replaced_by_a_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


def directory_removed(path: Path) -> None:
    shutil.rmtree(path.parent)
    path.parent.write_text("What is this?")


FAULTS = [
    replaced_by_a_directory,
    directory_removed,
    lambda path: path.unlink(),
    lambda path: path.write_bytes(b"\xff" * path.stat().st_size),
    lambda path: path.chmod(0o400),
]


@pytest.mark.parametrize("state", ["STOPPING", "STOPPED", "STARTING"])
@pytest.mark.parametrize("spoil", FAULTS, ids=["a directory", "no directory", "removed", "damaged", "read-only"])
def test_whatever_becomes_of_the_file_the_node_is_started(
    site: Site, tmp_path: Path, spoil: Callable[[Path], None], state: str
) -> None:
    ledger, done = SqliteLedger(tmp_path / "state", site.clock, busy_seconds=0.01), []
    ledger.write(site.record, 0)

    def lose(_: float) -> bool:
        if site.node.state == state and not done:
            done.append(state)
            spoil(ledger.path)
        return False

    site.ending = lose
    try:
        site.driver(ledger).drive()
    except LedgerError as error:
        assert "has ended (done), and that could not be recorded" in str(error)  # noqa: PT017
    assert (site.node.state, site.count("stop"), site.count("start")) == ("READY", 1, 1)


def test_at_every_write_a_ledger_that_stays_away_leaves_no_node_stopped(site: Site) -> None:
    """Nothing is stopped after the last record that was written; what was stopped runs again."""
    for number in range(100):
        site.begin()
        broken = Broken(site, number)
        try:
            assert broken.drive().phase is Phase.DONE
        except LedgerError as error:
            assert "there is no room" in str(error)  # noqa: PT017
        else:
            assert number >= 8
            return
        assert (site.node.state, site.count("stop")) == ("READY", site.count("start"))
        assert site.count("stop") == (site.record.phase is not Phase.REQUESTED)


def test_what_goes_on_unrecorded_is_recorded_when_it_can_be(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    broken = Broken(site, 2)  # the lease and the intent
    site.cloud.world.timing.start = 300

    def repair(_: float) -> bool:
        broken.works = broken.works or site.node.state == "STARTING"
        return False

    site.ending = repair
    assert broken.drive().phase is Phase.DONE
    assert site.record.phase is Phase.DONE
    assert (site.count("stop"), site.count("start"), site.record.stops) == (1, 1, 1)
    unrecorded = [one for one in site.reported if one.unrecorded]
    assert {one.phase for one in unrecorded} >= {Phase.STOPPED, Phase.STARTING}
    stopped = next(one for one in unrecorded if one.phase is Phase.STOPPED)
    assert stopped.alarm.startswith("NODE IS STOPPED: ")
    assert "`gcloud compute tpus tpu-vm start train-1 --zone=us-east5-a --project=lab`" in stopped.alarm
    assert not site.reported[-1].alarm
    assert "The restart of node train-1 is recorded again." in caplog.text


def test_a_write_whose_answer_is_lost_while_others_fail_is_found(site: Site) -> None:
    """What was to be recorded was, of which the driver does not know, and goes on."""
    watched, lost = Watched(site), [0]

    def lose(stored: Stored) -> None:
        if stored.record.phase is Phase.STOPPING and not lost[0]:
            lost[0] = 1
            watched.before_write = lose_too
            raise LedgerError("no answer")

    def lose_too(_: RestartRecord) -> None:
        lost[0] += 1
        if lost[0] < 12:
            raise LedgerError("no answer")

    watched.after_write = lose
    assert watched.drive().phase is Phase.DONE
    assert lost[0] > 12
    assert (site.record.phase, site.count("stop"), site.count("start")) == (Phase.DONE, 1, 1)


def test_a_start_that_is_refused_is_called_on_and_on_without_a_ledger(site: Site) -> None:
    broken = Broken(site, 2)
    site.cloud.world.faults.set(InjectedFault("StartNode", code="RESOURCE_EXHAUSTED", times=20))
    began = site.clock.monotonic()
    with pytest.raises(LedgerError, match="could not be recorded"):
        broken.drive()
    assert len(site.calls("StartNode")) == 21
    assert site.clock.monotonic() - began > 10 * LEASE_SECONDS  # the lease has long run out
    assert (site.node.state, site.count("stop")) == ("READY", 1)
    assert broken.tried > 100  # at each turn


def test_without_a_ledger_no_stop_is_called_a_second_time(site: Site) -> None:
    """The first one was lost on its way, which the API shows: recorded, it would be called again."""
    site.cloud.world.faults.set(InjectedFault("StopNode", code="UNAVAILABLE", times=1))
    broken, waited = Broken(site, 2), [0.0]
    with pytest.raises(LedgerError, match="there is no room"):
        broken.drive()
    assert (site.node.state, site.count("stop"), waited) == ("READY", 0, [0.0])
    assert len(site.calls("StopNode")) == 1
    broken.works = True
    assert broken.drive().phase is Phase.DONE
    assert site.count("stop") == 1


def test_another_driver_that_takes_over_makes_no_second_stop(site: Site) -> None:
    """The bucket is away for one of them alone, until after its lease: both may start the node."""
    broken, other = Broken(site, 2), []
    site.cloud.world.faults.set(InjectedFault("StartNode", code="RESOURCE_EXHAUSTED", times=3))

    def take_over(_: float) -> bool:
        if not other and site.node.state == "STOPPED" and len(site.calls("StartNode")) == 2:
            other.append(None)
            other[0] = site.driver().drive()
        return False

    site.ending = take_over
    with pytest.raises(LedgerError):
        broken.drive()
    assert other[0].phase is Phase.DONE
    assert (site.node.state, site.count("stop"), site.count("start"), site.node.boots) == ("READY", 1, 1, 2)


def test_a_node_that_another_driver_left_down_is_started_though_nothing_can_be_written(site: Site) -> None:
    site.ending = lambda _: site.node.state == "STOPPED"
    assert site.driver().drive().open
    site.ending = lambda _: False
    broken = Broken(site, 0)
    with pytest.raises(LedgerError, match="could not be recorded"):
        broken.drive()
    assert (site.node.state, site.count("stop"), site.count("start")) == ("READY", 1, 1)


def test_a_driver_that_is_ended_without_a_ledger_says_what_starts_the_node(
    site: Site, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Broken(site, 2)
    site.cloud.world.faults.set(InjectedFault("StartNode", code="RESOURCE_EXHAUSTED", times=20))
    site.ending = lambda _: len(site.calls("StartNode")) > 3
    assert broken.drive().open
    last = caplog.records[-1]
    assert last.levelno == logging.ERROR
    assert last.getMessage().startswith("NODE IS STOPPED: ")
    assert "tpu-vm start train-1" in last.getMessage()
    assert "Nobody goes on with it from here" in last.getMessage()


def test_a_start_is_called_however_long_the_look_took(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    """Each look takes six seconds of a lease of ten: the stop has to wait for a faster one, the start has not."""
    watched = Watched(site)
    watched.after_look = lambda: site.cloud.pass_time(6.0 if site.count("stop") else 0.0)
    assert watched.drive(lease_seconds=10.0).phase is Phase.DONE
    assert (site.count("stop"), site.count("start")) == (1, 1)
    assert "put off" not in caplog.text


def test_a_record_that_is_gone_when_the_lease_has_run_out_is_written_again(site: Site) -> None:
    watched = Watched(site)

    def remove(record: RestartRecord) -> None:
        if record.phase is Phase.STOPPED and not site.count("start"):
            site.clock.advance(2 * LEASE_SECONDS)
            site.ledger = MemoryLedger()

    watched.before_write = remove
    assert watched.drive().phase is Phase.DONE
    assert written(site.ledger, TARGET).record.phase is Phase.DONE
