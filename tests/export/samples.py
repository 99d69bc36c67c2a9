"""A daemon's view for the tests of what shows it: fixed data, given as the daemon would give it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from tpuwatch.export.view import FileStatus, JournalStatus, LoopStatus, Problem, Status
from tpuwatch.model import Cause, Event, Finding, Launch, Outcome, Remedy

NOW = 1_795_182_254.25  # 2026-11-20T13:44:14.250Z

LOG = "/tmp/tpu_logs/tpu_driver.t1v-n-1.alice.log.INFO.20261120-130000.4242"  # noqa: S108 # where libtpu writes


def event(cause: Cause = Cause.HBM_OOM_COMPILE, *, age: float = 60.0, **changes: object) -> Event:
    """An event of `age` seconds before NOW."""
    base = Event(
        key=b"\x01\x02",
        rule="hbm-oom-compile",
        cause=cause,
        observed=NOW - age + 0.1,
        time=NOW - age,
        severity="E",
        pid=4242,
        file=LOG,
        offset=1234,
        text="E1120 13:43:14.250000 4242 hbm.cc:10] Ran out of memory in memory space hbm. Used 28.00G of 15.75G hbm.",
        details={"used_bytes": 28 * 2**30, "limit_bytes": 15.75 * 2**30},
        id=7,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def finding(first: Event | None = None, **changes: object) -> Finding:
    """A finding over one event."""
    first = first or event()
    base = Finding(
        cause=first.cause,
        count=1,
        first=first,
        last=first,
        line=17,
        details={"used_bytes": 28 * 2**30},
        summary="The program needs 28 GiB of HBM and 15.75 GiB is there.",
        remedy=(
            Remedy("Use a smaller batch, or shard the model over more chips.", "https://docs.example.org/hbm"),
            Remedy(
                "Check for padding: sizes that are multiples of 128 waste least.", "https://docs.example.org/padding"
            ),
        ),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def launch(**changes: object) -> Launch:
    """A launch that came up."""
    base = Launch(
        pid=4242,
        started=NOW - 120,
        user="alice",
        host="t1v-n-1",
        build="libtpu_20261001",
        chips=4,
        chip_kind="v5e",
        premapped_bytes=4 * 2**30,
        init_seconds=7.5,
        outcome=Outcome.OK,
        last_heard=NOW - 1,
        environment={"TPU_PREMAPPED_BUFFER_SIZE": "4294967296"},
        id=3,
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


def status(**changes: object) -> Status:
    """A daemon that does its work."""
    base = Status(
        version="0.1.0",
        started=NOW - 7200,
        now=NOW,
        state="Following 1 log; all of it is read.",
        reading=True,
        loops=(LoopStatus("follow", NOW - 0.5, fresh=True),),
        files=(FileStatus(LOG, size_bytes=4096, read_bytes=4000, last_written=NOW - 2),),
        problems=(),
        notices=(),
        config_source="/etc/tpuwatch/config.toml",
        journal=JournalStatus("/var/lib/tpuwatch/journal.sqlite", durable=True, events=1),
        last_launch=launch(),
    )
    return replace(base, **changes)  # type: ignore[arg-type] # the tests name fields


PROBLEM = Problem("/tmp/tpu_logs/tpu_driver.x", "permission is denied")  # noqa: S108 # where libtpu writes


@dataclass
class SampleView:
    """Answers with what it holds, and remembers what it was asked."""

    shown: Status = field(default_factory=status)
    stored: list[Event] = field(default_factory=list)
    wrong: list[Finding] = field(default_factory=list)
    started: list[Launch] = field(default_factory=list)
    asked: list[dict[str, object]] = field(default_factory=list)
    error: Exception | None = None

    def status(self) -> Status:
        if self.error:
            raise self.error
        return self.shown

    def events(
        self, *, since: float | None = None, cause: Cause | None = None, after_id: int | None = None, limit: int = 100
    ) -> list[Event]:
        self.asked.append({"since": since, "cause": cause, "after_id": after_id, "limit": limit})
        return self.stored

    def findings(self) -> list[Finding]:
        return self.wrong

    def launches(self, limit: int = 100) -> list[Launch]:
        self.asked.append({"limit": limit})
        return self.started
