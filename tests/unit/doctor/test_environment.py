"""One request and one command, bounded."""

from __future__ import annotations

import sys

import pytest

from tests.standins.doctor_machine import serving
from tpuwatch.doctor.environment import CommandResult, fetch, glibc_version, run_command


def test_a_page_is_fetched_and_cut() -> None:
    with serving({"/x": "y" * 1_000_000}) as address:
        reply = fetch(address, "/x")
        assert (reply.status, len(reply.body), reply.headers["metadata-flavor"]) == (200, 1 << 18, "Google")
        assert fetch(address, "/z").status == 404
    with pytest.raises(OSError, match="refused"):
        fetch(address, "/x")


def test_a_command_is_run_bounded() -> None:
    assert run_command([sys.executable, "-c", "print('hello'); raise SystemExit(3)"], seconds=60) == CommandResult(
        3, "hello\n"
    )
    assert run_command(["/no/such/command"]) is None
    assert (
        run_command(
            [sys.executable, "-c", "import sys; sys.stdin.read(); import threading; threading.Event().wait()"],
            seconds=0.2,
        )
        is None
    )


def test_the_c_library_has_a_version() -> None:
    assert all(part.isdigit() for part in glibc_version().split(".")) or glibc_version() == ""
