"""Which of libtpu's logs are of a command's processes."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from tpuwatch.exec.analysis import LaunchLogs


def _log(directory: Path, pid: int, *, started: float) -> Path:
    stamp = time.strftime("%Y%m%d-%H%M%S", time.localtime(started))
    path = directory / f"tpu_driver.host.user.log.INFO.{stamp}.{pid}"
    path.write_text("Log file created at: 2026/09/21 14:13:20\n")
    return path


def _found(logs: LaunchLogs) -> list[str]:
    found = []
    for file, descriptor in logs.look():
        os.close(descriptor)
        found.append(file.path)
    return found


def test_a_process_that_lives_is_known_by_its_mark(tmp_path: Path) -> None:
    now = time.time()
    logs = LaunchLogs(str(tmp_path), "abc", now)
    words = [sys.executable, "-S", "-c", "print('up', flush=True); input()"]
    with (
        subprocess.Popen(words, env={"TPUWATCH_LAUNCH": "abc"}, stdin=-1, stdout=-1) as ours,
        subprocess.Popen(words, env={"TPUWATCH_LAUNCH": "abcd"}, stdin=-1, stdout=-1) as other,
    ):
        for process in (ours, other):
            assert process.stdout is not None
            process.stdout.readline()  # it has its own environment by now
        path = _log(tmp_path, ours.pid, started=now)
        _log(tmp_path, other.pid, started=now)
        assert _found(logs) == [str(path)]
        ours.communicate(b"\n")
        other.communicate(b"\n")


def test_of_a_process_that_has_ended_only_what_came_after_the_command_is_ours(tmp_path: Path) -> None:
    now = time.time()
    new = _log(tmp_path, 2**22 + 1, started=now)
    _log(tmp_path, 2**22 + 2, started=now - 3600)
    assert _found(LaunchLogs(str(tmp_path), "abc", now)) == [str(new)]


def test_a_file_is_reported_once_and_a_directory_may_come_later(tmp_path: Path) -> None:
    now = time.time()
    directory = tmp_path / "later"
    logs = LaunchLogs(str(directory), "abc", now)
    assert _found(logs) == []
    directory.mkdir()
    path = _log(directory, 2**22 + 1, started=now)
    found: list[str] = []
    deadline = time.monotonic() + 60.0
    while not found and time.monotonic() < deadline:
        found = _found(logs)
    assert found == [str(path)]
    assert _found(logs) == []
