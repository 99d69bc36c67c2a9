"""`tpuwatch demo`: three launches and a sick node on a simulated TPU VM, watched by the real daemon."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse

    from tpuwatch.export.paper import Paper

READING_SECONDS = 4.0  # between two launches
FAST_PACE = 0.05
INTERRUPTED = 130  # what a shell says of a program that Ctrl-C ended
SIGNAL_SECONDS = 0.2  # how soon one is noticed at the latest
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.add_argument(
        "--fast", action="store_true", help="without pauses for the reader: some seconds in place of forty"
    )
    parser.add_argument("--stay", action="store_true", help="leave the daemon running at the end, until Ctrl-C")


def run(args: argparse.Namespace) -> int:
    """Tell the story; 0 at its end, 130 when it was interrupted."""
    from tpuwatch.export.paper import Paper
    from tpuwatch.sim.demo import Demo
    from tpuwatch.sim.machine import Machine

    paper = Paper(sys.stdout)
    pace = FAST_PACE if args.fast else 1.0
    for number in SIGNALS:
        signal.signal(number, signal.default_int_handler)
    try:
        with Machine(pace=pace) as machine:
            Demo(machine, paper, pause_seconds=READING_SECONDS * pace).run()
            if args.stay:
                _stay(paper, machine.url)
    except KeyboardInterrupt:
        paper.line()
        paper.line("Interrupted: the daemon is stopped and its files are removed.")
        return INTERRUPTED
    paper.line()
    paper.line("That was the demo: the daemon is stopped and its files are removed.", style="dim")
    return 0


def _stay(paper: Paper, url: str) -> None:
    from tpuwatch.waker import Waker

    told = Waker()
    for number in SIGNALS:
        signal.signal(number, lambda *_: told.wake())
    paper.line()
    paper.line(f"The daemon goes on at {url}/ until you press Ctrl-C.")
    while not told.wait(SIGNAL_SECONDS):  # a signal that another thread took wakes nobody
        pass
