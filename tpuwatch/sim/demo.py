"""The story of three launches and a sick node on a simulated TPU VM, told as the real daemon recognises it."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.errors import TpuwatchError
from tpuwatch.export import terminal
from tpuwatch.model import Cause
from tpuwatch.sim.actions import StartLaunch
from tpuwatch.sim.machine import Machine, wait_for

if TYPE_CHECKING:
    import subprocess

    from tpuwatch.export.paper import Paper
    from tpuwatch.sim.actions import Action

LAUNCH_SECONDS = 60.0  # the longest launch of the story takes six
SEEN_SECONDS = 60.0  # how long the daemon may take to tell of what is written; it needs a tenth of a second
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
    """One step of the scenario as the story tells it; `cause` or `verdict` is what the daemon is expected to find."""

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
    """Tells the chapters on paper."""

    def __init__(self, machine: Machine, paper: Paper, *, pause_seconds: float) -> None:
        """`pause_seconds` is the time to read between chapters."""
        self.machine = machine
        self.paper = paper
        self.pause_seconds = pause_seconds
        self.after = 0  # the last event that was read
        self.told: set[str] = set()  # causes

    def run(self) -> None:
        """Tell all of it; raises TpuwatchError when the daemon does not do its part."""
        self._open()
        for number, (chapter, step) in enumerate(zip(CHAPTERS, self.machine.steps, strict=True), 1):
            self._tell(number, chapter, step)
            wait_for(self._tell_events, self.pause_seconds)  # what the job's own output adds comes a little later
        self._close()

    def _open(self) -> None:
        self.paper.line("tpuwatch demo: the real daemon on a simulated TPU VM and cloud", style="bold")
        self.paper.line()
        self.machine.start_daemon()
        self.paper.line(f"libtpu logs  {self.machine.logs}")
        self.paper.line(f"job output   {self.machine.jobs}")
        self.paper.line(f"metrics      {self.machine.url}/metrics", style="blue")
        self.paper.line(f"status       {self.machine.url}/", style="blue")

    def _tell(self, number: int, chapter: Chapter, step: Action) -> None:
        self.paper.line()
        self.paper.line(f"{number} of {len(CHAPTERS)}  {chapter.title}", style="bold")
        self.paper.line(chapter.text, indent=2)
        self.paper.line(f"$ {chapter.command}", indent=2, style="dim")
        if not isinstance(step, StartLaunch):
            self.machine.do(step)
            self._await_verdict(chapter.verdict)
            return
        self._follow(self.machine.launch(step), chapter.cause)
        if not (chapter.cause or self.told):
            self.paper.line("nothing is wrong", indent=INDENT, style="green")

    def _await_verdict(self, verdict: str | None) -> None:
        """Tell what the daemon says of the machine's own node, once it says what is expected."""

        def judged() -> dict[str, Any] | None:
            nodes: list[dict[str, Any]] = self.machine.get("/api/v1/nodes")["nodes"]
            return next((node for node in nodes if node["own"] and node["cloud"] and node["verdict"] == verdict), None)

        node = wait_for(judged, VERDICT_SECONDS)
        if node is None:
            raise TpuwatchError(
                f"the daemon did not say within {VERDICT_SECONDS:.0f} s that its node is {verdict}; "
                f"{self.machine.last_words()}"
            )
        self._tell_node(node)

    def _tell_node(self, node: dict[str, Any]) -> None:
        self._stamped(time.time(), f"{node['node']}: {node['verdict']} ({node['sureness']})", "bold red")
        self._aside(node["summary"])
        for contradiction in node["contradictions"]:
            self._aside(contradiction, "yellow")
        terminal.tell_remedy(self.paper, node, indent=INDENT)

    def _aside(self, text: str, style: str = "") -> None:
        self.paper.line(terminal.printable(text), indent=INDENT, hang=2, style=style)

    def _follow(self, process: subprocess.Popen[bytes], cause: str | None) -> None:
        """Tell what the daemon sees while the process runs, and then until it has seen how the launch went and why."""
        seen: set[str] = set()

        def ended() -> int | None:
            self._tell_launch(process.pid, seen)
            self._tell_events()
            return process.poll()

        def complete() -> bool | None:
            ended()
            return True if seen - {"starting"} and cause in {None, *self.told} else None

        wait_for(ended, LAUNCH_SECONDS)
        if wait_for(complete, SEEN_SECONDS) is None:
            raise TpuwatchError(
                f"the daemon did not say within {SEEN_SECONDS:.0f} s how process {process.pid} went"
                f"{f' and that {cause} is the cause' if cause else ''}; {self.machine.last_words()}"
            )

    def _tell_launch(self, pid: int, seen: set[str]) -> None:
        for launch in self.machine.get("/api/v1/launches")["launches"]:
            if launch["pid"] == pid and launch["outcome"] not in seen:
                seen.add(launch["outcome"])
                style = _LAUNCH_STYLES.get(launch["outcome"], "yellow")
                self._stamped(time.time(), terminal.describe_launch(launch), style)

    def _tell_events(self) -> None:
        for event in self.machine.get(f"/api/v1/events?after={self.after}")["events"]:
            self.after = max(self.after, event["id"])
            if Cause(event["cause"]).is_fault:
                self._tell_event(event)

    def _tell_event(self, event: dict[str, Any]) -> None:
        cause = event["cause"]
        when = event["time_epoch"] or event["observed_epoch"]
        place = event["file"].rpartition("/")[2]
        if cause in self.told:
            self._stamped(when, f"{cause} again, in {place}", "dim")
            return
        self.told.add(cause)
        self._stamped(when, cause, "bold red")
        self.paper.line(f"in {place}", indent=INDENT, style="dim")
        for finding in self.machine.get("/api/v1/findings")["findings"]:
            if finding["cause"] == cause:
                self._tell_finding(finding)

    def _tell_finding(self, finding: dict[str, Any]) -> None:
        self.paper.line(terminal.printable(finding["summary"]), indent=INDENT)
        for fact in terminal.facts(finding["details"], finding["summary"]):
            self.paper.line(terminal.printable(fact), indent=INDENT, hang=2)
        terminal.tell_remedy(self.paper, finding, indent=INDENT)

    def _close(self) -> None:
        self.paper.line()
        self.paper.line("What Prometheus sees", style="bold")
        for line in self.machine.text("/metrics").splitlines():
            if line.startswith(SHOWN_METRICS) and not line.endswith(" 0.0"):
                self.paper.line(line, indent=2)

    def _stamped(self, when: float, text: str, style: str) -> None:
        clock = time.strftime("%H:%M:%S", time.localtime(when))
        self.paper.line(f"{clock}  {text}", indent=2, hang=INDENT - 2, style=style)
