"""Tests of a file of decisions: lines of several processes, and whatever the disk does."""

from __future__ import annotations

import errno
import fcntl
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.core.audit_file import AuditFile

PADDING = "x" * 80


def numbers(path: Path) -> list[Any]:
    return [json.loads(line)["number"] for line in path.read_text("ascii").splitlines()]


@pytest.fixture
def audit(tmp_path: Path) -> AuditFile:
    return AuditFile(tmp_path / "state" / "audit.jsonl")


def test_it_is_set_aside_once_it_is_large(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, max_bytes=1000)
    for number in range(30):
        audit.write({"number": number, "padding": PADDING})
    assert sorted(file.name for file in tmp_path.iterdir()) == ["audit.jsonl", "audit.jsonl.1"]
    kept = [*numbers(Path(f"{path}.1")), *numbers(path)]
    assert kept == list(range(kept[0], 30))
    assert all(file.stat().st_size <= 1000 for file in tmp_path.iterdir())


def test_one_that_another_process_sets_aside_is_left_to_it(tmp_path: Path) -> None:
    path = tmp_path / "audit.jsonl"
    audit = AuditFile(path, max_bytes=100)
    audit.write({"number": 1, "padding": PADDING})
    with open(path, "rb") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        audit.write({"number": 2})
        assert not Path(f"{path}.1").exists()
        assert numbers(path) == [1, 2]
    audit.write({"number": 3})
    assert (numbers(Path(f"{path}.1")), numbers(path)) == ([1, 2], [3])


def test_a_full_disk_is_a_warning_and_the_next_line_is_whole(
    audit: AuditFile, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    audit.write({"number": 1})
    write = os.write
    with monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda fd, data: write(fd, data[:10]))
        audit.write({"number": 2})
        patch.setattr(os, "write", raising(errno.ENOSPC))
        audit.write({"number": 3})
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "No space left on device" in caplog.text
    audit.write({"number": 4})
    assert "is written again" in caplog.text
    assert audit.path.read_text("ascii").splitlines() == ['{"number": 1}', '{"number":', '{"number": 4}']


def raising(number: int) -> Any:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


def test_a_link_in_its_place_is_not_followed(
    audit: AuditFile, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    audit.path.parent.mkdir()
    audit.path.symlink_to(victim)
    audit.write({"number": 1})
    assert victim.read_text() == "mine"
    assert "cannot be written" in caplog.text
