"""What the watcher makes of texts and logs, in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuwatch.exec.analysis import _BLOCK_BYTES, read
from tpuwatch.exec.watcher import Text, WatcherCounters, WatcherJob

FAILURE = (
    "RESOURCE_EXHAUSTED: Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to "
    "allocate 5.00G. That was not possible. There are 3.00G free.\n"
)


def _job(path: Path, *, start: int = 0, copy: bool = False, config: Path | None = None) -> WatcherJob:
    text = Text("<stdout>", os.open(path, os.O_RDWR), start, copy)
    environ = {"TPU_LOG_DIR": str(path.parent / "none"), "TPUWATCH_CONFIG": str(path.parent / "none.toml")}
    return WatcherJob("id", time.time(), environ, config, (text,))


def _causes(job: WatcherJob, over: Callable[[float], bool] = lambda _: True) -> list[str]:
    try:
        return [finding["cause"] for finding in read(job, WatcherCounters(), over)["findings"]]
    finally:
        os.close(job.texts[0].file)


def test_what_is_written_until_the_end_is_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("fine\n")
    waits = []

    def over(seconds: float) -> bool:
        waits.append(seconds)
        if len(waits) == 3:
            with out.open("a") as file:
                file.write(FAILURE.rstrip("\n"))  # a last line without an end, and then the end
        return len(waits) >= 3

    assert _causes(_job(out), over) == ["premapped_exhausted"]
    assert waits[0] == 0.0  # it read something: it looks again at once
    assert 0.0 < waits[1] < waits[2]  # then for ever longer


def test_what_stood_in_the_file_before_is_not_the_commands(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text(FAILURE)
    assert _causes(_job(out, start=len(FAILURE))) == []
    assert _causes(_job(out)) == ["premapped_exhausted"]


def test_a_file_that_is_cut_off_is_begun_again(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("x" * 10_000)
    calls = []

    def over(_: float) -> bool:
        calls.append(1)
        if len(calls) == 2:
            out.write_text(FAILURE)
        return len(calls) >= 3

    assert _causes(_job(out), over) == ["premapped_exhausted"]


def test_the_space_of_a_copy_is_given_back_as_it_is_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"." * (_BLOCK_BYTES - 1) + b"\n" + FAILURE.encode())
    before = out.stat().st_blocks
    counters = WatcherCounters()
    job = _job(out, copy=True)
    document = read(job, counters, lambda _: True)
    os.close(job.texts[0].file)
    assert [finding["cause"] for finding in document["findings"]] == ["premapped_exhausted"]
    assert counters.read_offset(0) == out.stat().st_size
    if out.stat().st_blocks == before:
        pytest.skip("this file system cannot give back parts of a file")
    assert out.stat().st_blocks * 512 < _BLOCK_BYTES // 4


def test_rules_of_the_configuration_are_used_and_a_bad_one_stops_nothing(tmp_path: Path) -> None:
    rules = tmp_path / "rules"
    rules.mkdir()
    (rules / "own.toml").write_text(
        "[[rule]]\nid = 'own'\ncause = 'hang'\nsummary = 'Own.'\nmatch = ['OWNWORD [0-9]+']\n"
        "examples = ['OWNWORD 7']\ncounterexamples = ['OWN 7']\n"
    )
    out = tmp_path / "out"
    out.write_text("OWNWORD 12\n" + FAILURE)
    config = tmp_path / "config.toml"
    config.write_text(f"[logs]\nrules = ['{rules}']\n")
    assert "hang" in _causes(_job(out, config=config))
    config.write_text("[logs\n")
    assert _causes(_job(out, config=config)) == ["premapped_exhausted"]
