"""The demo: a launch that fails and the next, tuned one; a node that lies and its restart. On a simulated TPU VM.

Everything after a `$` is a real command, and what is below it is what that command prints.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tpuwatch.core import TpuwatchError, format_size, listed
from tpuwatch.model import SIZE
from tpuwatch.sim.machine import JOB_NEED, JOB_SCRIPT, SimulatedMachine, wait_for

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.terminal import Console

READY_SECONDS = 60.0  # for the daemon to see what a scene is about; the first question to the cloud loads its client
LAUNCH = ("exec", "--", "python3", JOB_SCRIPT)
SHOWN_METRICS = (
    "tpuwatch_events_total",
    "tpuwatch_launches_total",
    "tpuwatch_premapped_buffer_bytes",
    "tpuwatch_last_init_seconds",
    "tpuwatch_verdict{",
)


@dataclass(frozen=True, slots=True)
class Scene:
    """A command, what it is to show, and the exit codes that it may have."""

    title: str
    text: str
    command: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    before: Callable[[Demo], object] = lambda _: True  # whether all that it is to show is there; None: not yet
    elsewhere: bool = False  # on another machine of the cloud
    after: Callable[[Demo], object] = lambda _: None  # what begins while the reader reads


class Demo:
    """Runs the scenes and prints them on console, whose stream has to be a file."""

    def __init__(self, machine: SimulatedMachine, console: Console, *, pause_seconds: float) -> None:
        """`pause_seconds` is the time to read between scenes."""
        self.machine = machine
        self.console = console
        self.pause_seconds = pause_seconds

    def run(self) -> None:
        """Run all scenes; raises TpuwatchError if the daemon or a command does not do what is expected."""
        self.console.line("tpuwatch demo: the real daemon and commands, on a simulated TPU VM and cloud", style="bold")
        self.machine.start_daemon()
        scenes = (*TUNING, *RESTARTING)
        for number, scene in enumerate(scenes, 1):
            self._run_scene(f"{number} of {len(scenes)}", scene)
            scene.after(self)
            self.machine.pause(self.pause_seconds)
        self._close()

    def _run_scene(self, number: str, scene: Scene) -> None:
        self.console.line()
        self.console.line(f"{number}  {scene.title}", style="bold blue")
        self.console.line(scene.text)
        if wait_for(lambda: scene.before(self), READY_SECONDS) is None:
            raise TpuwatchError(
                f"the daemon was not ready within {READY_SECONDS:.0f} s for `tpuwatch {shlex.join(scene.command)}`; "
                f"{self.machine.log_tail()}"
            )
        self.console.line()
        self.console.row(f"$ tpuwatch {shlex.join(scene.command)}", style="bold")
        code = self.machine.run(scene.command, self.console.stream, elsewhere=scene.elsewhere)
        if code not in scene.codes:
            expected = listed([str(one) for one in scene.codes])
            raise TpuwatchError(
                f"`tpuwatch {shlex.join(scene.command)}` ended with {code} in place of {expected}; "
                f"{self.machine.log_tail()}"
            )

    def _line(self, text: str, style: str = "") -> None:
        self.console.line()
        self.console.line(text, style=style)

    def _close(self) -> None:
        self._line("What Prometheus sees", style="bold blue")
        for line in self.machine.text("/metrics").splitlines():
            if line.startswith(SHOWN_METRICS) and not line.endswith(" 0.0"):
                self.console.row(line)

    # -- what the scenes wait for

    def has_plan(self) -> object:
        """Whether the daemon has decided a size for the next launch."""
        plans = (self.machine.get("/api/v1/tune") or {}).get("workloads", ())
        return any(one["name"] == SIZE for plan in plans for one in plan["settings"]) or None

    def is_dead(self) -> object:
        """Whether the daemon has found out that the node's runtime has died."""
        self.die()
        return self._is("runtime_stuck", "high")

    def is_back(self) -> object:
        """Whether the daemon has seen that nothing is wrong with the node any more."""
        return self._is("idle", "medium")

    def die(self) -> None:
        """Have the node's runtime die, once."""
        while self.machine.steps:
            self.machine.execute(self.machine.steps.pop(0))

    def _is(self, *judged: str) -> object:
        nodes: list[dict[str, Any]] = self.machine.get("/api/v1/nodes")["nodes"]
        return next((node for node in nodes if node["own"] and (node["verdict"], node["confidence"]) == judged), None)


TUNING = (
    Scene(
        "A launch that fails",
        f"{JOB_SCRIPT} needs {format_size(JOB_NEED)} of the premapped buffer, and libtpu makes one of 4 GiB.",
        LAUNCH,
        (1,),
    ),
    Scene(
        "What the next launch gets",
        "The daemon has read libtpu's log of it, and has decided.",
        ("tune",),
        before=Demo.has_plan,
    ),
    Scene(
        "The next launch",
        "The same command: it starts with what was decided.",
        LAUNCH,
        after=Demo.die,
    ),
)
RESTARTING = (
    Scene(
        "A node that lies",
        "The runtime of train-1 dies under its job. The Cloud TPU API goes on calling it READY and HEALTHY.",
        ("status",),
        (1,),
        Demo.is_dead,
    ),
    Scene(
        "Its restart",
        "No process is there that could be ended. So the node is restarted, from another machine.",
        ("restart", "train-1", "--yes", "--reason", "its runtime is dead"),
        (0, 3),  # not verified: there is no tpuwatch on the simulated node that could answer
        elsewhere=True,
    ),
    Scene("All nodes", "The daemon sees that it is back.", ("nodes",), before=Demo.is_back),
)
