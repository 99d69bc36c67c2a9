"""The child process: its reports, its limits, and that nothing of it is left."""

from __future__ import annotations

import os
import select
import sys
from pathlib import Path

import pytest

from tpuwatch.program.child import Child, ChildError, ChildLimits

WIDE = ChildLimits(60.0, 1 << 34)


class FakeClock:
    """A clock that is read only."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now


def started(directory: Path, script: str, limits: ChildLimits = WIDE, clock: FakeClock | None = None) -> Child:
    """A Python that runs `script`, in which `out` writes reports."""
    head = "import json, os, sys\nout = os.fdopen(json.loads(sys.argv[1])['report'], 'w', buffering=1)\n"
    output = directory / "output.txt"
    return Child(
        [sys.executable, "-c", head + script],
        {},
        environ=dict(os.environ),
        output=output,
        limits=limits,
        clock=clock,  # type: ignore[arg-type]
    )


def answers(child: Child) -> list[object]:
    try:
        return [report for report in child.reports() if report is not None]
    finally:
        child.close()


def test_reports_come_in_their_order_and_what_it_prints_is_kept_apart(tmp_path: Path) -> None:
    child = started(tmp_path, "out.write('{\"a\": 1}\\n'); print('words'); out.write('{\"b\": 2}\\n')")
    assert answers(child) == [{"a": 1}, {"b": 2}]
    assert (tmp_path / "output.txt").read_text() == "words\n"
    assert child.process.returncode == 0


def test_it_answers_what_it_is_sent_until_it_is_let_go(tmp_path: Path) -> None:
    child = started(tmp_path, "for line in sys.stdin: out.write(json.dumps(json.loads(line) * 2) + '\\n')")
    child.send(4)
    got = []
    for report in child.reports():
        if report is not None:
            got.append(report)
            child.finish() if len(got) == 2 else child.send(report)
    child.close()
    assert got == [8, 16]


def test_at_its_deadline_it_is_ended_with_its_children(tmp_path: Path) -> None:
    clock = FakeClock()
    script = (
        "import subprocess\np = subprocess.Popen(['sleep', '1000'])\nout.write(json.dumps(p.pid) + '\\n')\np.wait()"
    )
    child = started(tmp_path, script, ChildLimits(30.0, 1 << 34), clock)
    grandchild = -1
    reports = child.reports()
    while grandchild < 0:
        report = next(reports)
        if isinstance(report, int):
            grandchild, clock.now = os.pidfd_open(report), 31.0
    with pytest.raises(ChildError, match=r"longer than 30 s \(--timeout\)"):
        list(reports)
    child.close()
    assert child.process.returncode == -9
    ended, _, _ = select.select([grandchild], [], [], 60)
    assert ended, "the child's own child is left"
    os.close(grandchild)


def test_above_its_memory_it_is_ended(tmp_path: Path) -> None:
    child = started(tmp_path, "x = bytearray(300 << 20)\nsys.stdin.read()", ChildLimits(60.0, 200 << 20))
    with pytest.raises(ChildError, match=r"more than 0.2 GiB .* \(--memory-limit\)"):
        list(child.reports())
    child.close()


@pytest.mark.parametrize("text", ["garbage\\n", "{\\n", "x' * (2 << 20) + '"])
def test_what_is_no_report_ends_it(tmp_path: Path, text: str) -> None:
    child = started(tmp_path, f"out.write('{text}'); out.flush(); sys.stdin.read()")
    with pytest.raises(ChildError, match="no report"):
        list(child.reports())
    child.close()


def test_one_that_takes_nothing_any_more_is_no_error(tmp_path: Path) -> None:
    child = started(tmp_path, "os.close(0); out.write('0\\n'); out.close()")
    for report in child.reports():
        if report == 0:
            child.process.wait(60)
            child.send("too late")
    child.close()
    assert child.process.returncode == 0
