"""One attempt to have a TPU, or the CPU, compute something: a child process, its stages and how it ended."""

from __future__ import annotations

import signal
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import SystemClock
from tpuwatch.libtpu import ARGUMENTS, LOG_DIR, UNBUFFERED, merged_all
from tpuwatch.model import ProbeStage
from tpuwatch.program.child import Child, ChildError, ChildTimeoutError
from tpuwatch.program.output import LOGS, OUTPUT, find_faults, tail

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tpuwatch.core import Clock
    from tpuwatch.model import Finding
    from tpuwatch.program.child import ChildLimits

IMPORT_SECONDS: Final = 120.0  # TensorFlow takes 15 to 23 s under load
CHILD: Final = Path(__file__).with_name("probe_child.py")
STAGES: Final = ("start", "import", "connect", "initialise", "compile", "compute", "step")
_LOADING: Final = frozenset({"start", "import"})


@dataclass(frozen=True, slots=True)
class ProbeAttempt:
    """How far it came. `problem` says why it went no further: kind, stage, message."""

    platform: str  # "tpu" or "cpu"
    stages: tuple[ProbeStage, ...] = ()  # in their order
    facts: Mapping[str, Any] = field(default_factory=dict)  # framework, version, python, devices, files, results
    problem: Mapping[str, Any] | None = None
    findings: tuple[Finding, ...] = ()
    output: str = ""  # the end of what it printed, where it failed
    ended: bool = True  # False: the kernel does not let it end
    longest_pause: float = 0.0  # seconds that this machine left us without a look at it

    @property
    def kind(self) -> str:
        """The kind of its problem; "" without one."""
        return "" if self.problem is None else str(self.problem["kind"])

    @property
    def stage(self) -> str:
        """The stage at which it failed, or the last one."""
        return self.stages[-1].name if self.stages else "start"


def attempt(
    platform: str,
    *,
    command: list[str],
    framework: str | None,
    step: str | None,
    limits: ChildLimits,
    environ: Mapping[str, str],
    on_stage: Callable[[str], None],
    keep: tuple[int, ...] = (),
    clock: Clock | None = None,
) -> ProbeAttempt:
    """Run `command`, the interpreter and its script, with the request as the last argument.

    `limits.seconds` is for what comes after the import. Never raises for what the child does; KeyboardInterrupt ends
    it.
    """
    with tempfile.TemporaryDirectory(prefix="tpuwatch-probe-", ignore_cleanup_errors=True) as name:
        directory = Path(name)
        (directory / LOGS).mkdir()
        own = {**environ, LOG_DIR: str(directory / LOGS), "PYTHONUNBUFFERED": "1"}
        own[ARGUMENTS] = merged_all(own.get(ARGUMENTS, ""), UNBUFFERED)  # else libtpu's last words are lost
        watch = _Watch(platform, limits, clock or SystemClock(), on_stage)
        try:
            child = Child(
                command,
                {"platform": platform, "framework": framework, "step": step},
                environ=own,
                output=directory / OUTPUT,
                limits=limits,
                clock=clock,
                keep=keep,
            )
        except OSError as error:
            problem = {"kind": "interpreter", "stage": "start", "message": f"{command[0]}: {error.strerror}"}
            return ProbeAttempt(platform, problem=problem)
        ended = True
        try:
            watch.follow(child)
        finally:
            ended = child.close()
        return watch.result(child, directory, ended=ended)


class _Watch:
    """What the child's reports have said so far."""

    def __init__(self, platform: str, limits: ChildLimits, clock: Clock, on_stage: Callable[[str], None]) -> None:
        self._platform = platform
        self._limits = limits
        self._clock = clock
        self._on_stage = on_stage
        self._stages = [ProbeStage("start", 0.0)]
        self._since = clock.monotonic()
        self._facts: dict[str, Any] = {}
        self._problem: dict[str, Any] | None = None
        self._done = False

    def follow(self, child: Child) -> None:
        child.allow(IMPORT_SECONDS)
        child.finish()  # there is nothing to send
        try:
            for report in child.reports():
                self._on_stage(f"{self._platform}: {self._stages[-1].name}")
                if report is not None:
                    self._take(report, child)
        except ChildTimeoutError as error:
            self._fail("timeout", str(error))
        except ChildError as error:
            self._fail("limit", str(error))
        self._end_stage()

    def result(self, child: Child, directory: Path, *, ended: bool) -> ProbeAttempt:
        if self._problem is None and not self._done:
            self._fail("died", _how(child.process.returncode))
        failed = self._problem is not None
        return ProbeAttempt(
            self._platform,
            tuple(self._stages),
            self._facts,
            self._problem,
            find_faults(directory) if failed else (),
            tail(directory) if failed else "",
            ended,
            child.longest_pause,
        )

    def _take(self, report: Any, child: Child) -> None:
        if not isinstance(report, dict):
            raise ChildError("the child process wrote something that is no report")
        stage, fact, error = report.get("stage"), report.get("fact"), report.get("error")
        if isinstance(stage, str) and stage in STAGES:
            self._end_stage()
            if self._stages[-1].name in _LOADING and stage not in _LOADING:
                child.allow(self._limits.seconds)
            if stage != self._stages[-1].name:
                self._stages.append(ProbeStage(stage, 0.0))
        elif isinstance(fact, dict):
            self._facts.update(fact)
        elif isinstance(error, dict):
            self._problem = {name: str(error.get(name, "")) for name in ("kind", "stage", "message")}
        elif report.get("done") is True:
            self._done = True
        else:
            raise ChildError("the child process wrote something that is no report")

    def _end_stage(self) -> None:
        now = self._clock.monotonic()
        last = self._stages[-1]
        self._stages[-1] = ProbeStage(last.name, last.seconds + now - self._since)
        self._since = now

    def _fail(self, kind: str, message: str) -> None:
        self._problem = self._problem or {"kind": kind, "stage": self._stages[-1].name, "message": message}


def _how(status: int | None) -> str:
    if status is None:
        return "the child process closed its report and cannot be ended"
    if status >= 0:
        return f"the child process ended without an answer (exit status {status})"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    return f"the child process was ended by {name}"
