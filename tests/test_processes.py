"""What /proc says, about a real process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tpuwatch.processes import ProcFs


def test_a_living_process_has_a_start_and_its_tpu_variables() -> None:
    before = time.time()
    environment = {"TPU_PREMAPPED_BUFFER_SIZE": "8589934592", "LIBTPU_INIT_ARGS": "--x=1", "SECRET": "no"}
    process = subprocess.Popen(
        [sys.executable, "-c", "print(flush=True); input()"],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        process.stdout.readline()  # until it runs Python, it has our own environment
        started = ProcFs().started(process.pid)
        assert started is not None
        assert before - 1 < started < time.time() + 1
        assert ProcFs().environment(process.pid) == {
            "TPU_PREMAPPED_BUFFER_SIZE": "8589934592",
            "LIBTPU_INIT_ARGS": "--x=1",
        }
    finally:
        process.communicate(b"\n")
    assert ProcFs().started(process.pid) is None


def test_a_name_in_parentheses_misleads_nobody(tmp_path: Path) -> None:
    (tmp_path / "uptime").write_text("1000.00 900.00\n")
    (tmp_path / "7").mkdir()
    fields = " ".join(["0"] * 18)
    ticks = 400 * os.sysconf("SC_CLK_TCK")
    (tmp_path / "7" / "stat").write_text(f"7 (a) R 1 (b) R {fields} {ticks} 0 0\n")
    started = ProcFs(tmp_path).started(7)
    assert started is not None
    assert abs(time.time() - 600 - started) < 5


def test_what_may_not_be_read_is_empty(tmp_path: Path) -> None:
    assert ProcFs(tmp_path).environment(7) == {}
    assert ProcFs(tmp_path).started(7) is None
