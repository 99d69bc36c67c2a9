"""One turn of the log side, with real files, a real store and a clock that is moved by hand."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pytest

from tests.standins.fake_processes import FakeProcesses
from tests.unit.logs.sites import DEAD_PID, HEADER, line, name, scanner
from tests.unit.store.make import event
from tests.unit.tune.recorded import finding, launch, record
from tpuwatch.core.clock import ManualClock
from tpuwatch.ingest.ingest import HOLD_SECONDS, MAX_HOLD_SECONDS, RETRY_SECONDS, Ingest
from tpuwatch.ingest.job_processes import JobProcesses
from tpuwatch.launches.tracker import LaunchTracker
from tpuwatch.logs.parse.scan import Scanner
from tpuwatch.logs.rules.catalogue import Catalogue, for_programs, load_catalogue
from tpuwatch.logs.tail import follow
from tpuwatch.logs.tail.files import Refusal
from tpuwatch.logs.tail.follow import Follower
from tpuwatch.metrics.registry import Metrics
from tpuwatch.model.causes import Cause
from tpuwatch.model.events import Event
from tpuwatch.model.launches import Outcome
from tpuwatch.store import EventStore

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SETTLED = 0.06  # seconds after which a record at the end of a file is taken as whole
EVENTS = 'tpuwatch_events_total{cause="hang"}'


@dataclass
class Machine:
    """A log directory, and the ingest over it."""

    root: Path
    clock: ManualClock = field(default_factory=ManualClock)
    new_events: list[Event] = field(default_factory=list)
    stored: list[tuple[list[float], list[str]]] = field(default_factory=list)  # starts of launches, ids of records

    def __post_init__(self) -> None:
        for directory in (self.logs, self.jobs):
            directory.mkdir(exist_ok=True)
        rules = [scanner().catalogue.rules[0], *(rule for rule in load_catalogue().rules if rule.mark)]
        self.scanner = Scanner(Catalogue(tuple(rules)))
        self.store = EventStore.open(self.root / "state", self.clock)
        self.metrics = Metrics(loops=[], refusals=[reason.value for reason in Refusal])
        tracker = LaunchTracker(self.store.launches())
        self.ingest = Ingest(
            jobs=JobProcesses(tracker, FakeProcesses().read),
            follower=self.follower(),
            store=self.store,
            tracker=tracker,
            metrics=self.metrics,
            clock=self.clock,
            on_events=self.new_events.extend,
            rules={rule.id: rule for rule in load_catalogue().rules},
        )
        self.ingest.on_launches = lambda launches, records: self.stored.append(
            ([one.started for one in launches], [one.id for one in records])
        )

    @property
    def logs(self) -> Path:
        return self.root / "tpu_logs"

    @property
    def jobs(self) -> Path:
        return self.root / "jobs"

    def follower(self) -> Follower:
        return Follower(
            log_dirs=[str(self.logs)],
            job_globs=[str(self.jobs / "*.log")],
            scanner=self.scanner,
            clock=self.clock,
            cursors=self.store.cursors(),
            first_run=self.store.first_run,
            wake=lambda: None,
        )

    def restart(self) -> None:
        """As after a crash: all but the store is forgotten."""
        self.ingest.follower.close()
        self.store.close(clean=False)
        self.__post_init__()

    def turns(self, count: int = 3) -> str:
        """Some turns, far enough apart for everything to be looked at and settled; the last one's sentence."""
        for _ in range(count):
            self.clock.advance(1.0)
            sentence = self.ingest.turn()
        return sentence

    def write(self, text: str, file: str = "") -> Path:
        path = self.logs / (file or name())
        with path.open("a") as log:
            log.write(text)
        return path

    def numbers(self) -> list[int]:
        return [event.details.get("number_count", -1) for event in self.store.events(after_id=0)]

    def metric(self, series: str) -> float:
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.metrics.exposition()[0].decode(), re.MULTILINE)
        assert found is not None, series
        return float(found[1])

    def fill_disk(self) -> Any:
        """Let the store grow no more; call what is returned to make room."""
        connection = self.store._connection
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count = {pages}")
        return lambda: connection.execute("PRAGMA max_page_count = 100000")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    machine = Machine(tmp_path)
    yield machine
    machine.ingest.follower.close()
    machine.store.close()


def flood(first: int, count: int = 300) -> str:
    """More than fits into what is left of a full store."""
    return "".join(line(number).replace("\n", " " + "x" * 1000 + "\n") for number in range(first, first + count))


def test_an_event_is_stored_counted_and_reported_once(machine: Machine) -> None:
    machine.turns()
    for severity in ("INFO", "WARNING", "ERROR"):
        machine.write(HEADER + line(1), name(severity))
    machine.turns()
    assert machine.numbers() == [1]
    assert machine.metric(EVENTS) == 1
    assert [(event.id, event.details) for event in machine.new_events] == [(1, {"number_count": 1})]
    assert machine.metric("tpuwatch_log_read_bytes_total") == 3 * len(HEADER + line(1))
    assert machine.metric('tpuwatch_log_records_total{severity="error"}') == 1
    assert machine.metric("tpuwatch_log_lag_bytes") == 0


def test_a_quiet_turn_writes_nothing(machine: Machine) -> None:
    machine.turns()
    wal = machine.root / "state" / "store.db-wal"
    before = wal.stat().st_size, wal.stat().st_mtime_ns
    assert machine.turns(5) == "Following the logs; nothing new."
    assert (wal.stat().st_size, wal.stat().st_mtime_ns) == before
    assert machine.ingest.due_in > 0


def test_the_first_turn_ends_the_first_run(machine: Machine) -> None:
    machine.turns(1)
    machine.restart()
    machine.write(line(1))  # while nobody looked
    machine.turns()
    assert [event.history for event in machine.store.events()] == [False]


def test_history_is_stored_and_counted_apart(tmp_path: Path) -> None:
    (tmp_path / "tpu_logs").mkdir()
    done = "CreateTpuSystemState: TPU initialization is successful and it took 3.5s"
    (tmp_path / "tpu_logs" / name()).write_text(HEADER + line(1) + line(2).replace("TESTEVENT 2", done))
    machine = Machine(tmp_path)
    machine.turns()
    machine.write(line(3))
    machine.turns()
    assert [(event.details["number_count"], event.history) for event in machine.store.events()] == [
        (1, True),
        (3, False),
    ]
    assert machine.metric(EVENTS) == 1
    (launch,) = machine.store.launches()
    assert (launch.outcome, launch.history) == (Outcome.OK, True)
    assert machine.metric('tpuwatch_launches_total{outcome="ok"}') == 0
    machine.ingest.follower.close()
    machine.store.close()


def test_what_cannot_be_stored_is_kept_and_committed_later(machine: Machine) -> None:
    machine.turns()
    machine.write(line(1))
    machine.turns()
    make_room = machine.fill_disk()
    machine.write(flood(2))
    sentence = machine.turns(1)
    assert sentence.startswith("Reading waits until what was read can be stored: cannot write the store")
    assert machine.ingest.blocked
    assert machine.ingest.due_in == RETRY_SECONDS
    assert machine.metric("tpuwatch_store_errors_total") == 1
    read = machine.metric("tpuwatch_log_read_bytes_total")
    machine.write(line(1000))
    machine.turns()
    assert machine.metric("tpuwatch_log_read_bytes_total") == read  # memory does not fill instead of the disk
    assert machine.numbers() == [1]
    assert machine.metric(EVENTS) == 1
    make_room()
    machine.turns()
    assert not machine.ingest.blocked
    assert {1, 2, 301, 1000} <= set(machine.numbers())
    assert machine.metric(EVENTS) == sum(1 + event.repeats for event in machine.new_events) == 302


def test_offsets_alone_are_kept_too(machine: Machine) -> None:
    machine.turns()
    machine.store._connection.execute("PRAGMA query_only = 1")
    machine.write("nothing to see here\n")
    machine.turns(1)
    assert machine.ingest.blocked
    machine.store._connection.execute("PRAGMA query_only = 0")
    machine.turns()
    assert not machine.ingest.blocked


@pytest.mark.parametrize("how", ["a crash", "a new follower"])
def test_what_was_not_stored_is_read_again_after(machine: Machine, how: str) -> None:
    machine.turns()
    make_room = machine.fill_disk()
    machine.write(flood(1))
    machine.turns()
    assert machine.ingest.blocked
    if how == "a crash":
        machine.restart()
    else:
        make_room()
        machine.ingest.replace_follower(machine.follower())
    machine.turns(5)
    assert {1, 300} <= set(machine.numbers())
    assert machine.metric(EVENTS) == sum(1 + event.repeats for event in machine.store.events()) == 300


def test_a_turn_that_fails_in_the_middle_loses_nothing(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    machine.turns()
    machine.write(line(1))

    with monkeypatch.context() as patch:
        patch.setattr(machine.ingest.tracker, "tick", broken)
        with pytest.raises(RuntimeError):
            machine.turns()
    machine.write(line(2))
    machine.ingest.replace_follower(machine.follower())
    machine.turns()
    assert machine.numbers() == [1, 2]
    assert machine.metric(EVENTS) == 2


COUNTERS = (
    EVENTS,
    'tpuwatch_events_total{cause="premapped_exhausted"}',
    "tpuwatch_backlog_events_total",
    "tpuwatch_premapped_failures_total",
    'tpuwatch_launches_total{outcome="ok"}',
)


def test_counters_continue_over_restarts_and_prunes(machine: Machine) -> None:
    machine.write(line(1), name("ERROR"))  # history
    machine.scanner = Scanner(Catalogue((scanner().catalogue.rules[0], *for_programs(load_catalogue()).rules)))
    machine.ingest.replace_follower(machine.follower())
    machine.turns()
    texts = (
        f"Process id {DEAD_PID}",
        "TPU premapped buffer enabled. Size: 4294967296",
        "TPU initialization is successful and it took 3.5s",
        "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 5.00G. "
        "That was not possible. There are 3.00G free.",
    )
    machine.write("".join(line(number).replace(f"TESTEVENT {number}", text) for number, text in enumerate(texts, 2)))
    machine.write(line(6))
    machine.turns()
    counted = [machine.metric(series) for series in COUNTERS]
    assert counted == [1, 1, 1, 1, 1]
    machine.clock.advance(86_400)
    assert machine.store.prune(60, 1 << 40) == 3
    machine.restart()
    assert [machine.metric(series) for series in COUNTERS] == counted
    machine.write(line(7))
    machine.turns()
    assert machine.metric(EVENTS) == 2
    machine.restart()
    machine.turns()
    assert machine.metric(EVENTS) == 2


def test_a_launch_that_could_not_be_stored_at_first_is_counted_once(machine: Machine) -> None:
    machine.turns()
    machine.store._connection.execute("PRAGMA query_only = 1")
    machine.write(line(1).replace("TESTEVENT 1", "TPU initialization is successful and it took 3.5s"))
    machine.turns()
    assert machine.ingest.blocked
    machine.store._connection.execute("PRAGMA query_only = 0")
    machine.ingest.replace_follower(machine.follower())
    machine.turns()
    assert machine.metric('tpuwatch_launches_total{outcome="ok"}') == 1
    assert machine.store.totals() == {("launches", "ok"): 1}


def broken(*_: object, **__: object) -> None:
    raise RuntimeError("nobody foresaw this")


@pytest.mark.parametrize("part", ["on_events", "on_launches", "count", "observe_init"])
def test_what_fails_after_the_commit_keeps_nothing_else_from_being_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, part: str
) -> None:
    machine.turns()
    if part == "on_events":
        machine.ingest._on_events = broken
    elif part == "on_launches":
        machine.ingest.on_launches = broken
    elif part == "count":
        count = machine.metrics.logs.count

        def all_but_the_first(*_: object, **__: object) -> None:
            monkeypatch.setattr(machine.metrics.logs, "count", count)
            broken()

        monkeypatch.setattr(machine.metrics.logs, "count", all_but_the_first)
    else:
        monkeypatch.setattr(machine.metrics.logs, "observe_init", broken)
    done = "CreateTpuSystemState: TPU initialization is successful and it took 3.5s"
    machine.write(line(1) + line(2) + line(3).replace("TESTEVENT 3", done))
    assert machine.turns() == "Following the logs; nothing new."
    assert machine.numbers() == [1, 2]
    assert machine.metric(EVENTS) == (0 if part == "count" else 2)
    assert machine.metric('tpuwatch_launches_total{outcome="ok"}') == 1
    assert machine.metric("tpuwatch_last_init_seconds") == (0 if part == "observe_init" else 3.5)
    assert len(machine.new_events) == (0 if part == "on_events" else 2)
    assert len(machine.stored) == (0 if part == "on_launches" else 1)
    assert machine.metric("tpuwatch_log_report_failures_total") == 1
    assert "nobody foresaw this" in caplog.text


def notice() -> Event:
    when = 1_790_000_000.0
    text = "maintenance-event: TERMINATE_ON_HOST_MAINTENANCE"
    return Event(b"notice", "test-event", Cause.HANG, when, when, "", None, "metadata", 0, text)


def test_an_added_event_that_was_not_stored_survives_a_new_follower(machine: Machine) -> None:
    machine.ingest.turn()
    machine.ingest.add_event(notice())
    machine.store._connection.execute("PRAGMA query_only = 1")
    machine.ingest.turn()
    assert machine.ingest.blocked
    machine.store._connection.execute("PRAGMA query_only = 0")
    machine.ingest.replace_follower(machine.follower())
    machine.ingest.turn()
    assert [event.file for event in machine.store.events()] == ["metadata"]


def test_a_jobs_output_takes_the_process_number_of_its_banner(machine: Machine) -> None:
    machine.turns()
    banner = line(1, "I").replace("TESTEVENT 1", "Process id 4711")
    (machine.jobs / "train.log").write_text(f"Starting.\n{banner}{line(2)}")
    (machine.jobs / "other.log").write_text("TESTEVENT 3\n")
    machine.turns()
    assert {event.details["number_count"]: event.pid for event in machine.store.events()} == {2: 4711, 3: None}


def test_a_launch_is_counted_when_it_is_decided(machine: Machine) -> None:
    machine.turns()
    marks = (
        "TPU premapped buffer enabled. Size: 4294967296",
        "CreateTpuSystemState: TPU initialization is successful and it took 3.5s",
    )
    machine.write("".join(line(number).replace(f"TESTEVENT {number}", mark) for number, mark in enumerate(marks)))
    machine.turns()
    assert machine.metric('tpuwatch_launches_total{outcome="ok"}') == 1
    assert machine.metric("tpuwatch_last_init_seconds") == 3.5
    assert machine.metric("tpuwatch_premapped_buffer_bytes") == 4 << 30
    assert machine.numbers() == []


STARTS = "TPU premapped buffer enabled. Size: 4294967296\n", "INFO:tensorflow:Initialized TPU in 8 seconds\n"


@pytest.mark.parametrize("killed", [False, True])
def test_a_start_that_only_an_output_tells_of_is_a_launch(machine: Machine, killed: bool) -> None:
    (machine.jobs / "old.log").write_text("".join(STARTS))  # nobody knows when that was
    machine.turns()
    output = machine.jobs / "train.log"
    output.write_text(STARTS[0])
    machine.turns()
    if killed:
        machine.restart()
    output.write_text("".join(STARTS))
    machine.turns(70)
    (launch,) = machine.store.launches()
    assert (launch.output, launch.premapped_bytes, launch.init_seconds) == (str(output), 4 << 30, 8.0)
    assert launch.outcome is Outcome.OK
    assert machine.metric('tpuwatch_launches_total{outcome="ok"}') == 1


def test_a_failure_in_both_log_and_output_of_a_launch_counts_once(machine: Machine) -> None:
    machine.scanner = Scanner(load_catalogue())
    machine.ingest.replace_follower(machine.follower())
    machine.turns()
    failure = (
        "Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to allocate 5.00G. "
        "That was not possible. There are 3.00G free."
    )
    texts = (f"Process id {DEAD_PID}", "TPU premapped buffer enabled. Size: 4294967296", failure)
    records = [line(number).replace(f"TESTEVENT {number}", text) for number, text in enumerate(texts)]
    machine.write("".join(records))
    machine.turns()
    assert machine.metric("tpuwatch_premapped_failures_total") == 1
    (machine.jobs / "train.log").write_text(f"{records[0]}XlaRuntimeError: {failure}\n")
    machine.turns()
    assert {event.pid for event in machine.store.events()} == {DEAD_PID}
    assert machine.metric('tpuwatch_events_total{cause="premapped_exhausted"}') == 1
    assert machine.metric("tpuwatch_premapped_failures_total") == 1
    assert [one.premapped_failures for one in machine.store.launches()] == [1]
    (machine.jobs / "other.log").write_text(f"{failure}\n")  # without a pid
    machine.turns()
    assert machine.metric("tpuwatch_premapped_failures_total") == 2


NO_ROOM = "RESOURCE_EXHAUSTED: Attempting to allocate 2.00G. That was not possible. There are 1.50G free.; (0x0x0_HBM0)"


def all_rules(machine: Machine) -> None:
    machine.scanner = Scanner(load_catalogue())
    machine.ingest.replace_follower(machine.follower())
    machine.turns()


@pytest.mark.parametrize("killed", [0, 1, 2, 3])
def test_other_reports_of_a_failure_are_kept_with_it_over_a_kill(machine: Machine, killed: int) -> None:
    all_rules(machine)
    record = time.strftime("E%m%d %H:%M:%S.000001  4242 tpu.cc:7] ", time.localtime(machine.clock.time()))
    output = machine.jobs / "train.log"
    chain = "\nThe above exception was the direct cause of the following exception:\n\n"
    traceback = 'Traceback (most recent call last):\n  File "a.py", line 7, in f\njax.errors.JaxRuntimeError: '
    steps: list[Callable[[], object]] = [
        lambda: machine.write(HEADER + f"{record}{NO_ROOM}\n"),
        lambda: output.write_text(f"{traceback}{NO_ROOM}\n"),
        lambda: machine.write(HEADER + f"{record}{NO_ROOM}\n", name("ERROR")),
        lambda: output.write_text(f"{output.read_text()}{chain}{traceback}{NO_ROOM}\n"),
    ]
    for number, step in enumerate(steps):
        step()
        machine.turns(2)
        if number == killed:
            scanner = machine.scanner
            machine.restart()
            machine.scanner = scanner
            machine.ingest.replace_follower(machine.follower())
    machine.turns()
    (found,) = machine.store.events()
    assert (found.severity, found.file) == ("E", str(machine.logs / name()))
    assert [(place.file, place.severity) for place in found.places] == [(str(output), "")] * 2
    assert machine.metric('tpuwatch_events_total{cause="hbm_oom_runtime"}') == 1


def test_what_is_no_fault_is_stored_and_counted_as_none(machine: Machine) -> None:
    machine.turns()
    machine.ingest.add_event(event("t", cause=Cause.TUNE_CHANGE))
    machine.turns()
    assert [one.cause for one in machine.store.events()] == [Cause.TUNE_CHANGE]
    assert 'cause="tune_change"' not in machine.metrics.exposition()[0].decode()


def test_refusals_and_truncations_are_counted(machine: Machine) -> None:
    log = machine.write(line(1) + line(2))
    machine.turns()
    (machine.logs / name("ERROR")).symlink_to("/etc/hostname")
    log.write_text(line(3))
    machine.turns()
    assert machine.metric('tpuwatch_log_refused_total{reason="link"}') == 1
    assert machine.metric("tpuwatch_log_truncations_total") == 1
    assert machine.numbers() == [1, 2, 3]


def test_bytes_that_are_gone_before_they_were_read_are_counted(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follow, "MAX_FILE_BYTES", 10)
    log = machine.jobs / "train.log"
    log.write_text("." * 99 + "\n")
    machine.ingest.turn()
    log.write_text("")
    machine.turns()
    machine.clock.advance(5)
    machine.turns()
    assert machine.metric("tpuwatch_log_lost_bytes_total") == 90
    machine.ingest.replace_follower(machine.follower())
    machine.turns()
    assert machine.metric("tpuwatch_log_lost_bytes_total") == 90


def test_a_record_is_reported_when_it_is_stored(machine: Machine) -> None:
    machine.turns()
    make_room = machine.fill_disk()
    many = [launch(pid=number, environment={"TPU_A": "x" * 4000}) for number in range(1, 17)]
    machine.ingest.add_record(record(*many))
    machine.turns()
    assert (machine.stored, machine.ingest.blocked) == ([], True)
    machine.ingest.replace_follower(machine.follower())  # as after a reload: nobody reads it again
    make_room()
    machine.turns()
    assert machine.stored == [([many[0].started] * 16, ["a1b2c3"])]
    assert len(machine.store.launches()) == 16
    assert {one.workload for one in machine.store.launches()} == {"train"}


def test_a_record_without_new_facts_is_reported_too(machine: Machine) -> None:
    machine.turns()
    machine.ingest.add_record(record())
    machine.turns()
    assert machine.stored == [([], ["a1b2c3"])]


FOUND = 'tpuwatch_events_total{cause="hbm_oom_runtime"}'


def exec_found(machine: Machine, **fields: Any) -> None:
    """`tpuwatch exec` leaves a record of a run that just failed; the daemon takes it from the drop box."""
    now = machine.clock.time()
    found = finding(**{"first": now, "last": now, **fields})
    machine.ingest.add_record(record(findings=(found,), started=now - 100, ended=now, owner="alice"))


def test_what_exec_found_is_an_event_when_all_else_is_read(machine: Machine) -> None:
    machine.turns()
    exec_found(machine, count=3)
    machine.turns(1)
    assert (machine.new_events, machine.stored) == ([], [])
    machine.clock.advance(HOLD_SECONDS)
    machine.ingest.turn()
    (stored,) = machine.new_events
    assert (stored.cause, stored.repeats) == (Cause.HBM_OOM_RUNTIME, 2)
    assert machine.stored == [([], ["a1b2c3"])]
    assert machine.metric(FOUND) == 3


def test_a_record_that_comes_again_after_a_crash_is_no_other_event(machine: Machine) -> None:
    machine.turns()
    for _ in range(3):
        exec_found(machine, count=3)
        machine.turns(8)
        machine.restart()
    assert machine.metric(FOUND) == 3
    assert len(machine.store.events()) == 1


@pytest.mark.parametrize("logged", [True, False])
def test_what_exec_found_is_no_event_where_the_daemon_reads_the_same(machine: Machine, *, logged: bool) -> None:
    all_rules(machine)
    stamp = time.strftime("E%m%d %H:%M:%S.000001  4242 tpu.cc:7] ", time.localtime(machine.clock.time()))
    exec_found(machine)
    if logged:
        machine.write(HEADER + f"{stamp}{NO_ROOM}\n")
    else:
        (machine.jobs / "train.log").write_text(f"XlaRuntimeError: {NO_ROOM}\n")
    machine.turns(10)
    (stored,) = machine.store.events()
    assert (stored.is_from_exec, [place.file for place in stored.places]) == (False, ["exec of train (alice)"])
    assert machine.metric(FOUND) == 1
    assert machine.stored[-1][1] == ["a1b2c3"]


def test_findings_do_not_wait_for_ever_for_a_log_that_grows_faster_than_it_is_read(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.turns()
    monkeypatch.setattr(Follower, "lag_bytes", 1)
    exec_found(machine)
    machine.turns(10)
    assert machine.new_events == []
    machine.clock.advance(MAX_HOLD_SECONDS)
    machine.ingest.turn()
    assert len(machine.new_events) == 1


def test_what_exec_found_is_stored_once_there_is_room(machine: Machine) -> None:
    machine.turns()
    machine.store._connection.execute("PRAGMA query_only = 1")
    exec_found(machine, count=3)
    machine.turns(8)
    assert (machine.ingest.blocked, machine.stored) == (True, [])
    machine.ingest.replace_follower(machine.follower())
    machine.store._connection.execute("PRAGMA query_only = 0")
    machine.turns()
    assert machine.metric(FOUND) == 3
