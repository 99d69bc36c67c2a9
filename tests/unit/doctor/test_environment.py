"""A command, bounded."""

from __future__ import annotations

import sys

from tpuwatch.doctor.environment import CommandResult, run_command


def test_a_command_is_run_bounded() -> None:
    greets = "print('hello'); raise SystemExit(3)"
    hangs = "import sys, threading; sys.stdin.read(); threading.Event().wait()"
    assert run_command([sys.executable, "-c", greets], seconds=60) == CommandResult(3, "hello\n")
    assert run_command(["/no/such/command"]) is None
    assert run_command([sys.executable, "-c", hangs], seconds=0.2) is None
