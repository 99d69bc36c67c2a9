"""A machine for tests: processes that do what a test says when they are signalled, and commands that answer."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.standins.memory_ledger import MemoryLedger
from tests.unit.restart.records import record, written
from tpuwatch.config.restart import RestartConfig
from tpuwatch.core.clock import ManualClock
from tpuwatch.host.holders import HolderScan
from tpuwatch.model.restart import ProcessId, RestartRecord
from tpuwatch.model.signals import Holder
from tpuwatch.model.verdict import Action
from tpuwatch.restart.local.driver import LocalDriver
from tpuwatch.restart.local.linux import Linux
from tpuwatch.restart.local.system import CommandOutcome, PidHandle, ProcessEntry

SHOW = ("show", "--property=LoadState,ActiveState,InvocationID", "--", "tpu-runtime.service")


@dataclass
class Process:
    pid: int
    ticks: int = 1000
    parent: int = 1
    group: int = 0  # 0: its own
    state: str = "S"
    kernel: bool = False
    holds: bool = True
    started: float = 1_789_990_000.0
    ends_on: tuple[str, ...] = ("SIGKILL",)
    lets_go_on: tuple[str, ...] = ()
    catches: tuple[str, ...] = ()
    denied: bool = False
    over: bool = False

    @property
    def holder(self) -> Holder:
        return Holder(self.pid, "alice", f"python3 train-{self.pid}.py", self.started, ("/dev/vfio/0",))


@dataclass
class FakeSystem(Linux):
    """Waiting moves the clock."""

    clock: ManualClock
    processes: dict[int, Process] = field(default_factory=dict)
    boot: str = "boot-1"
    unseen: tuple[str, ...] = ()
    lock_file: tuple[bool, str] = (True, "")
    sent: list[tuple[int, str]] = field(default_factory=list)
    ran: list[tuple[tuple[str, ...], dict[str, str]]] = field(default_factory=list)
    answer: Callable[[tuple[str, ...]], CommandOutcome] = lambda _: CommandOutcome(0)
    programs: Mapping[str, str] = field(default_factory=dict)
    before_send: Callable[[int], None] = lambda _: None
    removed: int = 0
    handles: int = 0

    def add(self, pid: int, **fields: Any) -> Process:
        self.processes[pid] = Process(pid, **fields)
        return self.processes[pid]

    def boot_id(self) -> str:
        return self.boot

    def own(self) -> int:
        return 500

    def entries(self) -> dict[int, ProcessEntry]:
        return {
            one.pid: ProcessEntry(
                ProcessId(one.pid, one.ticks), one.parent, one.group or one.pid, one.state, one.kernel
            )
            for one in self.processes.values()
        }

    def held(self) -> HolderScan:
        return HolderScan(tuple(one.holder for one in self.processes.values() if one.holds), unseen=self.unseen)

    def holds(self, pid: int) -> bool:
        return pid in self.processes and self.processes[pid].holds

    def catches(self, pid: int, number: signal.Signals) -> bool:
        return number.name in self.processes[pid].catches

    def read_text(self, pid: int, name: str) -> str:
        return f"{name} of {pid}"

    def blocked(self, process: ProcessId) -> bool:
        return self.processes[process.pid].state == "D"

    @contextmanager
    def handle(self, process: ProcessId) -> Iterator[PidHandle | None]:
        one = self.processes.get(process.pid)
        self.handles += 1
        try:
            yield PidHandle(process, 7) if one is not None and one.ticks == process.ticks else None
        finally:
            self.handles -= 1

    def is_over(self, handle: PidHandle) -> bool:
        one = self.processes.get(handle.process.pid)
        return one is None or one.ticks != handle.process.ticks or one.over

    def send(self, handle: PidHandle, number: signal.Signals) -> bool:
        self.before_send(handle.process.pid)
        one = self.processes.get(handle.process.pid)
        if one is None or one.ticks != handle.process.ticks:
            return False
        if one.denied:
            raise PermissionError(1, "Operation not permitted")
        self.sent.append((one.pid, number.name))
        if number.name in one.ends_on:
            del self.processes[one.pid]
        elif number.name in one.lets_go_on:
            one.holds = False
        return True

    def wait(self, handles: Sequence[PidHandle], seconds: float) -> None:
        assert handles
        self.clock.advance(seconds)

    def run(
        self, argv: Sequence[str], seconds: float, environment: Mapping[str, str], leave: Callable[[], bool]
    ) -> CommandOutcome:
        assert seconds > 0
        assert leave is not None
        self.ran.append((tuple(argv), dict(environment)))
        return self.answer(tuple(argv))

    def find(self, program: str) -> str:
        return self.programs.get(program, "")

    def remove_lock_file(self) -> tuple[bool, str]:
        self.removed += 1
        return self.lock_file


class Desk:
    """A machine with its ledger."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.system = FakeSystem(self.clock)
        self.system.add(1, holds=False)
        self.system.add(500, parent=1, holds=False)  # tpuwatch
        self.ledger = MemoryLedger()
        self.reported: list[str] = []

    def want(self, action: Action, **fields: Any) -> RestartRecord:
        """Let a record ask for it."""
        wanted = record(
            action=action, cause="job_stuck", requested=self.clock.time(), entered=self.clock.time(), **fields
        )
        self.ledger.write(wanted, 0)
        return wanted

    def put(self, **changes: Any) -> None:
        """Change the record behind everybody's back."""
        stored = written(self.ledger)
        self.ledger.write(replace(stored.record, **changes), stored.version)

    def driver(self, at_fault: tuple[Holder, ...] = (), **more: Any) -> LocalDriver:
        given: dict[str, Any] = {
            "clock": self.clock,
            "wait": self.wait,
            "at_fault": at_fault,
            "settings": RestartConfig(),
            "on_progress": lambda progress: self.reported.append(progress.sentence),
        }
        return LocalDriver(more.pop("ledger", self.ledger), record().target, system=self.system, **{**given, **more})

    def wait(self, seconds: float) -> bool:
        self.clock.advance(seconds)
        return False

    def end(self, *at_fault: int, **more: Any) -> RestartRecord:
        """Ask for an end of these processes, and drive it."""
        holders = tuple(self.system.processes[pid].holder for pid in at_fault)
        self.want(Action.END_HOLDER)
        return self.driver(holders, **more).drive()
