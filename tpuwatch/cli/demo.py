"""`tpuwatch demo`: a launch that is tuned and a node that is restarted, by the real daemon and commands."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from tpuwatch.sim import SimulatedMachine
    from tpuwatch.terminal import Console

READING_SECONDS = 2.0  # between two scenes
FAST_PACE = 0.05
INTERRUPTED = 130  # the exit code by convention after Ctrl-C
SIGNAL_SECONDS = 0.2  # how soon one is noticed at the latest
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fast", action="store_true", help="without pauses for reading, and with a job in a hurry")
    parser.add_argument(
        "--stay",
        action="store_true",
        help="leave the daemon running at the end, until Ctrl-C, and print commands to try in another terminal",
    )


def run(args: argparse.Namespace) -> int:
    """Run the demo; 0 at its end, 130 if it was interrupted."""
    from tpuwatch.sim import Demo, SimulatedMachine
    from tpuwatch.terminal import Console

    console = Console(sys.stdout)
    pace = FAST_PACE if args.fast else 1.0
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    try:
        with SimulatedMachine(pace=pace) as machine:
            Demo(machine, console, pause_seconds=READING_SECONDS * pace).run()
            if args.stay:
                _stay(console, machine)
    except KeyboardInterrupt:
        console.line()
        console.line("Interrupted: the daemon is stopped and its files are removed.")
        return INTERRUPTED
    console.line()
    console.line("That was the demo: the daemon is stopped and its files are removed.", style="dim")
    if not args.stay:
        console.line("To look around while it runs:", style="dim")
        console.row("  tpuwatch demo --stay", style="dim")
    return 0


def _stay(console: Console, machine: SimulatedMachine) -> None:
    from tpuwatch.core import Waker

    waker = Waker()
    for number in SIGNALS:
        signal.signal(number, lambda *_: waker.wake())
    console.line()
    console.line("To look around, in another terminal:", style="bold blue")
    for line in machine.commands():
        console.row(f"  {line}")
    console.line(f"Or in a browser: {machine.url}/")
    console.line("The daemon goes on until you press Ctrl-C here.")
    while not waker.wait(SIGNAL_SECONDS):  # a signal that another thread took wakes nobody
        pass
