"""Launches that a stand-in TPU VM plays: each one is a real process that writes what libtpu and a job would write.

Run as a program (`python -m tpuwatch.sim.host.launch NAME --logs DIRECTORY`) one launch is played by the process,
so that its pid, its environment and its end are as real as its files.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.core import SystemClock
from tpuwatch.model import DEFAULT_PREMAPPED_BYTES, SIZE
from tpuwatch.sim.host.filesystem import on_machine
from tpuwatch.sim.host.glog import GlogFiles
from tpuwatch.sim.host.job import JobOutput
from tpuwatch.sim.host.logwriter import SimulatedProcess, premapped_message
from tpuwatch.sim.host.report import SimulatedAllocation

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

# The first has 14 columns: the chip keeps the last dimension in tiles of 128, so nine tenths of it are padding.
PADDED = (
    SimulatedAllocation(16 << 30, "f32[33554432,14]"),
    SimulatedAllocation(4 << 30, "bf16[16,32,2048,2048]"),
)


@dataclass(frozen=True, slots=True)
class Stage:
    """What a launch has to play with. `pause` waits for that many seconds of the story's time."""

    libtpu: SimulatedProcess
    job: JobOutput
    premapped_bytes: int
    pause: Callable[[float], None]


@dataclass(frozen=True, slots=True)
class SimulatedLaunch:
    """One launch: `play` returns the process's exit status. `phase` is what the TPU's runtime shows meanwhile."""

    play: Callable[[Stage], int]
    phase: str = ""  # of tpuwatch.sim.cloud.nodes.Phase; empty: nothing of it
    environment: Mapping[str, str] = field(default_factory=dict)


def _start(stage: Stage, seconds: float) -> None:
    """Load libtpu and bring the TPU up; `seconds` is how long that takes."""
    stage.libtpu.banner(premapped_bytes=stage.premapped_bytes)
    stage.libtpu.init_start(premapped_bytes=stage.premapped_bytes)
    stage.libtpu.flush()
    stage.pause(seconds)
    stage.libtpu.init_ok(seconds)
    stage.libtpu.flush()


def _train(stage: Stage, steps: int) -> None:
    for step in range(1, steps + 1):
        stage.pause(0.4)
        stage.job.step(step * 100, 2.5 / (1 + step / 4), 0.004)


def healthy(stage: Stage) -> int:
    """The TPU comes up, a program compiles, training goes on."""
    _start(stage, 2.4)
    stage.libtpu.compile_ok()
    stage.libtpu.flush()
    _train(stage, 8)
    return 0


def premapped_exhausted(stage: Stage) -> int:
    """Training begins; then a transfer needs more of the pinned host region than there is."""
    _start(stage, 1.6)
    stage.libtpu.compile_ok()
    stage.libtpu.flush()
    _train(stage, 3)
    stage.libtpu.premapped_exhausted(requested=512 << 20, free=196 << 20)
    stage.job.traceback("RESOURCE_EXHAUSTED: " + premapped_message(requested=512 << 20, free=196 << 20))
    return 1


def hbm_oom(stage: Stage) -> int:
    """The compiler finds that the program does not fit, mostly because of padding."""
    _start(stage, 2.1)
    stage.pause(0.8)
    stage.libtpu.hbm_oom(PADDED)
    stage.job.hbm_oom(PADDED)
    return 1


def slow_init(stage: Stage) -> int:
    """A premapped region of 64 GiB: pinning it takes far longer than the 15 s that a launch may take."""
    _start(stage, 48.5)
    _train(stage, 3)
    return 0


def busy(stage: Stage) -> int:
    """Another process holds the chips."""
    stage.libtpu.banner(premapped_bytes=stage.premapped_bytes)
    stage.libtpu.busy()
    stage.job.traceback(
        "FAILED_PRECONDITION: TPU initialization failed: open(/dev/vfio/0): 16: Device or resource busy; "
        "Couldn't open iommu group /dev/vfio/0"
    )
    return 1


LAUNCHES = {
    "healthy": SimulatedLaunch(healthy, "training"),
    "premapped": SimulatedLaunch(premapped_exhausted, "training", {SIZE: str(256 << 20)}),
    "hbm-oom": SimulatedLaunch(hbm_oom, "compiling"),
    "slow-init": SimulatedLaunch(slow_init, "starting", {SIZE: str(64 << 30)}),
    "busy": SimulatedLaunch(busy),
}


def play(launch: SimulatedLaunch, libtpu: SimulatedProcess, job: JobOutput, pause: Callable[[float], None]) -> int:
    """Play the launch to its end and close its files; returns its exit status."""
    premapped = int(os.environ.get(SIZE, launch.environment.get(SIZE, DEFAULT_PREMAPPED_BYTES)))
    try:
        return launch.play(Stage(libtpu, job, premapped, pause))
    finally:
        libtpu.close()


def main() -> int:
    """Play one launch in this process."""
    parser = argparse.ArgumentParser(prog="python -m tpuwatch.sim.host.launch", description=main.__doc__)
    parser.add_argument("launch", choices=LAUNCHES)
    parser.add_argument("--logs", type=Path, required=True, metavar="DIRECTORY", help="where libtpu's log files go")
    parser.add_argument("--pace", type=float, default=1.0, help="1 in real time, 0 without any waiting (default: 1)")
    arguments = parser.parse_args()
    with on_machine(arguments.logs):
        return play(
            LAUNCHES[arguments.launch],
            SimulatedProcess(GlogFiles(arguments.logs, SystemClock())),
            JobOutput(sys.stderr),
            lambda seconds: time.sleep(seconds * arguments.pace),
        )


if __name__ == "__main__":
    sys.exit(main())
