"""The demo: three launches and a faulty node on a simulated TPU VM, as the real daemon reports them."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.core import TpuwatchError, printable
from tpuwatch.model import Cause
from tpuwatch.sim.host.machine import SimulatedMachine, wait_for
from tpuwatch.sim.scenario.actions import StartLaunch
from tpuwatch.terminal import findings

if TYPE_CHECKING:
    import subprocess

    from tpuwatch.sim.scenario.actions import ScenarioAction
    from tpuwatch.terminal import Console

LAUNCH_SECONDS = 60.0  # the longest launch takes six
DETECTION_SECONDS = 60.0  # for the daemon to report a log line; it takes a tenth of a second
VERDICT_SECONDS = 60.0  # how long it may take to judge the node: the first question to the cloud loads its client
INDENT = 12  # below a line with a time
_LAUNCH_STYLES = {"starting": "dim", "ok": "green"}
SHOWN_METRICS = (
    "tpuwatch_events_total",
    "tpuwatch_launches_total",
    "tpuwatch_premapped_failures_total",
    "tpuwatch_last_init_seconds",
    "tpuwatch_log_records_total",
    "tpuwatch_verdict{",
)


@dataclass(frozen=True, slots=True)
class Chapter:
    """Title and text of one step of the scenario, with the cause or verdict that the daemon is expected to report."""

    title: str
    text: str
    command: str
    cause: str | None = None
    verdict: str | None = None


# In the order of the steps of scenarios/demo.toml.
CHAPTERS = (
    Chapter(
        "A healthy launch",
        "The TPU comes up, the program compiles, training goes on.",
        "python train.py",
    ),
    Chapter(
        "A premapped buffer that is too small",
        "Training begins. Then a transfer wants more pinned host memory than there is.",
        "TPU_PREMAPPED_BUFFER_SIZE=268435456 python train.py",
        "premapped_exhausted",
    ),
    Chapter(
        "A program that does not fit into HBM",
        "The compiler gives up before the first step.",
        "python train.py --table-columns 14",
        "hbm_oom_compile",
    ),
    Chapter(
        "A node that the API calls healthy, and that does nothing",
        "A program has held the TPU for three hours, and nothing runs on the chips.",
        "tpuwatch nodes",
        verdict="job_stuck",
    ),
)


class Demo:
    """Runs the chapters and prints them on console."""

    def __init__(self, machine: SimulatedMachine, console: Console, *, pause_seconds: float) -> None:
        """`pause_seconds` is the time to read between chapters."""
        self.machine = machine
        self.console = console
        self.pause_seconds = pause_seconds
        self.after = 0  # id of the last event that was read
        self.reported_causes: set[str] = set()

    def run(self) -> None:
        """Run all chapters; raises TpuwatchError if the daemon does not report what is expected."""
        self._open()
        for number, (chapter, step) in enumerate(zip(CHAPTERS, self.machine.steps, strict=True), 1):
            self._run_chapter(number, chapter, step)
            wait_for(self._print_events, self.pause_seconds)  # events from the job's output arrive a little later
        self._close()

    def _open(self) -> None:
        self.console.line("tpuwatch demo: the real daemon on a simulated TPU VM and cloud", style="bold")
        self.console.line()
        self.machine.start_daemon()
        self.console.line(f"libtpu logs  {self.machine.logs}")
        self.console.line(f"job output   {self.machine.jobs}")
        self.console.line(f"metrics      {self.machine.url}/metrics", style="blue")
        self.console.line(f"status       {self.machine.url}/", style="blue")

    def _run_chapter(self, number: int, chapter: Chapter, step: ScenarioAction) -> None:
        self.console.line()
        self.console.line(f"{number} of {len(CHAPTERS)}  {chapter.title}", style="bold")
        self.console.line(chapter.text, indent=2)
        self.console.line(f"$ {chapter.command}", indent=2, style="dim")
        if not isinstance(step, StartLaunch):
            self.machine.execute(step)
            self._await_verdict(chapter.verdict)
            return
        self._follow(self.machine.launch(step), chapter.cause)
        if not (chapter.cause or self.reported_causes):
            self.console.line("nothing is wrong", indent=INDENT, style="green")

    def _await_verdict(self, verdict: str | None) -> None:
        """Wait for the expected verdict on the machine's own node, and print it."""

        def judged() -> dict[str, Any] | None:
            nodes: list[dict[str, Any]] = self.machine.get("/api/v1/nodes")["nodes"]
            return next((node for node in nodes if node["own"] and node["cloud"] and node["verdict"] == verdict), None)

        node = wait_for(judged, VERDICT_SECONDS)
        if node is None:
            raise TpuwatchError(
                f"the daemon did not report within {VERDICT_SECONDS:.0f} s that its node is {verdict}; "
                f"{self.machine.log_tail()}"
            )
        self._print_node(node)

    def _print_node(self, node: dict[str, Any]) -> None:
        self._print_timed(time.time(), f"{node['node']}: {node['verdict']} ({node['confidence']})", "bold red")
        self._print_detail(node["summary"])
        for contradiction in node["contradictions"]:
            self._print_detail(contradiction, "yellow")
        findings.print_remedy(self.console, node, indent=INDENT)

    def _print_detail(self, text: str, style: str = "") -> None:
        self.console.line(printable(text), indent=INDENT, hang=2, style=style)

    def _follow(self, process: subprocess.Popen[bytes], cause: str | None) -> None:
        """Print what the daemon reports until the process has ended, and its outcome and cause are reported."""
        seen: set[str] = set()

        def ended() -> int | None:
            self._print_launch(process.pid, seen)
            self._print_events()
            return process.poll()

        def complete() -> bool | None:
            ended()
            return True if seen - {"starting"} and cause in {None, *self.reported_causes} else None

        wait_for(ended, LAUNCH_SECONDS)
        if wait_for(complete, DETECTION_SECONDS) is None:
            raise TpuwatchError(
                f"the daemon did not report within {DETECTION_SECONDS:.0f} s the outcome of process {process.pid}"
                f"{f' and that {cause} is the cause' if cause else ''}; {self.machine.log_tail()}"
            )

    def _print_launch(self, pid: int, seen: set[str]) -> None:
        for launch in self.machine.get("/api/v1/launches")["launches"]:
            if launch["pid"] == pid and launch["outcome"] not in seen:
                seen.add(launch["outcome"])
                style = _LAUNCH_STYLES.get(launch["outcome"], "yellow")
                self._print_timed(time.time(), findings.describe_launch(launch), style)

    def _print_events(self) -> None:
        for event in self.machine.get(f"/api/v1/events?after={self.after}")["events"]:
            self.after = max(self.after, event["id"])
            if Cause(event["cause"]).is_fault:
                self._print_event(event)

    def _print_event(self, event: dict[str, Any]) -> None:
        cause = event["cause"]
        when = event["time_epoch"] or event["observed_epoch"]
        name = event["file"].rpartition("/")[2]
        if cause in self.reported_causes:
            self._print_timed(when, f"{cause} again, in {name}", "dim")
            return
        self.reported_causes.add(cause)
        self._print_timed(when, cause, "bold red")
        self.console.line(f"in {name}", indent=INDENT, style="dim")
        for finding in self.machine.get("/api/v1/findings")["findings"]:
            if finding["cause"] == cause:
                self._print_finding(finding)

    def _print_finding(self, finding: dict[str, Any]) -> None:
        self.console.line(printable(finding["summary"]), indent=INDENT)
        for fact in findings.facts(finding["details"], finding["summary"]):
            self.console.line(printable(fact), indent=INDENT, hang=2)
        findings.print_remedy(self.console, finding, indent=INDENT)

    def _close(self) -> None:
        self.console.line()
        self.console.line("What Prometheus sees", style="bold")
        for line in self.machine.text("/metrics").splitlines():
            if line.startswith(SHOWN_METRICS) and not line.endswith(" 0.0"):
                self.console.line(line, indent=2)

    def _print_timed(self, when: float, text: str, style: str) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(when))
        self.console.line(f"{clock}  {text}", indent=2, hang=INDENT - 2, style=style)
