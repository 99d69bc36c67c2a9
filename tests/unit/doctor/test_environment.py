"""One request and one command, bounded."""

from __future__ import annotations

import sys

import pytest

from tests.standins.doctor_machine import serving
from tpuwatch.doctor.environment import CommandResult, fetch, run_command


def test_a_page_is_fetched_and_cut() -> None:
    with serving({"/x": "y" * 1_000_000}) as address:
        reply = fetch(address, "/x")
        assert (reply.status, len(reply.body), reply.headers["metadata-flavor"]) == (200, 1 << 18, "Google")
        assert fetch(address, "/z").status == 404
    with pytest.raises(OSError, match="refused"):
        fetch(address, "/x")


def test_a_command_is_run_bounded() -> None:
    greets = "print('hello'); raise SystemExit(3)"
    hangs = "import sys, threading; sys.stdin.read(); threading.Event().wait()"
    assert run_command([sys.executable, "-c", greets], seconds=60) == CommandResult(3, "hello\n")
    assert run_command(["/no/such/command"]) is None
    assert run_command([sys.executable, "-c", hangs], seconds=0.2) is None
