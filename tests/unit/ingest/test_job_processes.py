"""The kernel's kill of a process of a TPU job is a fault of the job; that of another process is a mere event."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.standins.fake_processes import OUTSIDE, FakeProcesses
from tests.unit.logs.oom_reports import GIB, cgroup_report, log, machine_report
from tests.unit.store.make import NOW
from tpuwatch.config import Config
from tpuwatch.config.schema import LogsConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.ingest import service
from tpuwatch.ingest.service import LogService
from tpuwatch.launches.tracker import Origin
from tpuwatch.logs.tail.files import Refusal
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.answers import Answer
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Event
from tpuwatch.model.signals import Holder, Host
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

HOLDER, LAUNCHED = 4711, 42


class Node:
    """A daemon's log service that follows the kernel's log, beside a holder of the TPU and a launch."""

    def __init__(self, root: Path) -> None:
        self.log = root / "kern.log"
        self.log.write_text("")
        self.clock = ManualClock()
        self.store = EventStore.open(root / "state", self.clock)
        self.metrics = Metrics(loops=[], refusals=[reason.value for reason in Refusal])
        self.service = LogService(
            Config(logs=LogsConfig(paths=(root / "none",), job_paths=(self.log,))),
            store=self.store,
            metrics=self.metrics,
            clock=self.clock,
            wake=lambda: None,
        )
        self.service.ingest.tracker.mark("init_started", {}, Origin(LAUNCHED, "alice", "vm"), self.clock.time())
        self.service.ingest.turn()
        holder = Holder(HOLDER, "alice", "python3", NOW, ("/dev/accel0",))
        self.service.on_host(Answer(Host("boot", NOW, holders=(holder,)), NOW))

    def written(self, *lines: str) -> list[Event]:
        """The events of these lines of the kernel's."""
        with self.log.open("a") as file:
            file.write(log(list(lines)))
        for _ in range(3):
            self.clock.advance(2)
            self.service.ingest.turn()
        return self.store.events()

    def faults(self) -> list[str]:
        answer = self.service.answer()
        assert answer.value is not None
        return [one.cause.value for one in answer.value.events]


@pytest.fixture
def watched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(service, "ProcFs", lambda _: FakeProcesses((LAUNCHED, NOW - 2)))
    node = Node(tmp_path)
    yield node
    node.service.close()
    node.store.close()


@pytest.mark.parametrize(
    "lines",
    [
        pytest.param(cgroup_report(HOLDER), id="the holder"),
        pytest.param(machine_report(HOLDER), id="the holder, for the machine's memory"),
        pytest.param(cgroup_report(99, "worker", cgroup=f"/jobs/{HOLDER}"), id="another process in its cgroup"),
        pytest.param(cgroup_report(OUTSIDE + LAUNCHED), id="a launch"),
    ],
)
def test_a_kill_of_a_job_is_its_fault(watched: Node, lines: list[str]) -> None:
    (event,) = watched.written(*lines)
    assert event.cause is Cause.HOST_OOM
    assert event.pid == event.details["killed_pid"]
    assert watched.faults() == ["host_oom"]


@pytest.mark.parametrize("report", [cgroup_report, machine_report])
def test_a_kill_of_another_process_is_no_fault(watched: Node, report: type) -> None:
    (event,) = watched.written(*report(99, "backup", cgroup="/system.slice/cron.service"))
    assert event.cause is Cause.PROCESS_KILLED
    assert (event.details["process"], event.details["unit"]) == ("backup", "cron.service")
    assert watched.faults() == []
    assert all(not one.faults for one in watched.service.ingest.tracker.latest())


def test_the_launch_that_was_killed_has_the_fault(watched: Node) -> None:
    watched.written(*cgroup_report(OUTSIDE + LAUNCHED))
    (launch,) = watched.service.ingest.tracker.latest()
    assert list(launch.faults) == ["host_oom"]


def test_the_event_has_the_limit_and_what_the_process_held(watched: Node) -> None:
    (event,) = watched.written(*cgroup_report(HOLDER))
    assert (event.details["limit_bytes"], event.details["resident_bytes"]) == (8 * GIB, 7 * GIB)
