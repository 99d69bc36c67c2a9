"""What the watcher makes of texts and logs, in this process."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tpuwatch.exec.analysis import _PUNCHED_BYTES, BLOCK_BYTES, END_BYTES, Reader, read
from tpuwatch.exec.watcher_job import Text, WatcherCounters, WatcherJob
from tpuwatch.model import Cause, Outcome

FAILURE = (
    "RESOURCE_EXHAUSTED: Allocating buffer from premapped region failed with: RESOURCE_EXHAUSTED: Attempting to "
    "allocate 5.00G. That was not possible. There are 3.00G free.\n"
)

PID = 4711


def _job(path: Path, *, start: int = 0, copy: bool = False, config: Path | None = None) -> WatcherJob:
    text = Text("<stdout>", os.open(path, os.O_RDWR), start, copy)
    environ = {"TPU_LOG_DIR": str(path.parent / "none"), "TPUWATCH_CONFIG": str(path.parent / "none.toml")}
    return WatcherJob("id", PID, time.time(), environ, config, (text,))


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
        if len(waits) == 4:
            with out.open("a") as file:
                file.write(FAILURE.rstrip("\n"))  # a last line without an end, and then the end
        return len(waits) >= 4

    assert _causes(_job(out), over) == ["premapped_exhausted"]
    assert waits[:2] == [0.0, 0.0]  # it loaded the rules, and read something: it looks again at once
    assert 0.0 < waits[2] < waits[3]  # then for ever longer


def test_what_stood_in_the_file_before_is_not_the_commands(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text(FAILURE)
    assert _causes(_job(out, start=len(FAILURE))) == []
    assert _causes(_job(out)) == ["premapped_exhausted"]


@pytest.mark.parametrize("until", [3, 4])  # truncated when the command ended, or before
def test_a_file_that_is_cut_off_is_begun_again(tmp_path: Path, until: int) -> None:
    out = tmp_path / "out"
    out.write_text("x" * 10_000)
    calls = []

    def over(_: float) -> bool:
        calls.append(1)
        if len(calls) == 3:
            out.write_text(FAILURE)
        return len(calls) >= until

    assert _causes(_job(out), over) == ["premapped_exhausted"]


def test_the_space_of_a_copy_is_given_back_as_it_is_read(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"." * (_PUNCHED_BYTES - 1) + b"\n" + FAILURE.encode())
    before = out.stat().st_blocks
    counters = WatcherCounters()
    job = _job(out, copy=True)
    document = read(job, counters, lambda _: counters.read_offset(0) == out.stat().st_size)
    os.close(job.texts[0].file)
    assert [finding["cause"] for finding in document["findings"]] == ["premapped_exhausted"]
    assert counters.read_offset(0) == out.stat().st_size
    if out.stat().st_blocks == before:
        pytest.skip("this file system cannot give back parts of a file")
    assert out.stat().st_blocks * 512 < _PUNCHED_BYTES // 4


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


LINE = b"step 12: loss 0.25 grad_norm 1.5 checkpoint in 88 steps\n"
BUSY = (
    b"RuntimeError: UNAVAILABLE: The TPU is already in use by process with pid 4711. Not attempting to load libtpu.so\n"
)


def _much(tmp_path: Path, size: int, line: bytes = LINE) -> Path:
    """A launch that failed for two reasons, with many lines of no interest before the first and between the two."""
    out = tmp_path / "out"
    fill = line * (size // len(line))
    out.write_bytes(fill + BUSY + fill + FAILURE.encode())
    return out


def test_of_what_was_not_read_when_the_command_ended_the_end_comes_first(tmp_path: Path) -> None:
    job = _job(_much(tmp_path, 3 * BLOCK_BYTES))
    reader = Reader(job, WatcherCounters(), lambda _: True, timer=iter(range(100)).__next__)
    assert [record.event.cause for record in reader.seen() if record.event is not None] == [Cause.PREMAPPED_EXHAUSTED]
    read_bytes = os.fstat(job.texts[0].file).st_size - reader.unread
    assert END_BYTES - len(LINE) <= read_bytes <= END_BYTES
    os.close(job.texts[0].file)


def test_with_time_enough_all_is_read_and_in_order(tmp_path: Path) -> None:
    job = _job(_much(tmp_path, 3 * BLOCK_BYTES, b"nothing of interest\n"))
    reader = Reader(job, WatcherCounters(), lambda _: True, timer=lambda: 0.0)
    found = [record.event.cause for record in reader.seen() if record.event is not None and not record.rule.general]
    assert found == [Cause.TPU_IN_USE, Cause.PREMAPPED_EXHAUSTED]
    assert reader.unread == 0
    os.close(job.texts[0].file)


UP = (
    "I: TPU premapped buffer enabled. Size: 8589934592 Threshold: 4294967296 Partitions: 2\n"
    "INFO:tensorflow:Initialized TPU in 8 seconds\n"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(UP, (Outcome.OK, 8.0, 8 << 30, 0), id="comes up"),
        pytest.param(UP + FAILURE, (Outcome.OK, 8.0, 8 << 30, 1), id="comes up and lacks room"),
        pytest.param(FAILURE, (Outcome.OK, None, None, 1), id="lacks room"),
        pytest.param(
            "TPU initialization is taking more than 60.5 seconds.\n", (Outcome.SLOW, 60.5, None, 0), id="is slow"
        ),
        pytest.param(
            "Starting premapped memory manager initialization...\n", (Outcome.KILLED, None, None, 0), id="dies"
        ),
    ],
)
def test_a_launch_is_known_by_the_output_alone(tmp_path: Path, text: str, expected: tuple[object, ...]) -> None:
    out = tmp_path / "out"
    out.write_text(text)
    job = _job(out)
    (launch,) = read(job, WatcherCounters(), lambda _: True)["records"]
    os.close(job.texts[0].file)
    assert launch["pid"] == PID
    assert launch["started"] == pytest.approx(job.started)
    names = ("outcome", "init_seconds", "premapped_bytes", "premapped_failures")
    assert tuple(launch[name] for name in names) == expected


@pytest.mark.parametrize("text", ["nothing to see here\n", "loss: 2.5\n" * 10, BUSY.decode()])
def test_output_that_no_launch_prints_shows_none(tmp_path: Path, text: str) -> None:
    out = tmp_path / "out"
    out.write_text(text)
    job = _job(out)
    assert read(job, WatcherCounters(), lambda _: True)["records"] == []
    os.close(job.texts[0].file)


@pytest.mark.parametrize(
    "logged", ["", "I1122 00:00:00.000001 77 tpu.cc:7] TPU premapped buffer enabled. Size: 8589934592\n"]
)
def test_a_launch_that_is_logged_and_printed_is_one(tmp_path: Path, logged: str) -> None:
    out, logs = tmp_path / "out", tmp_path / "none"
    out.write_text(UP + FAILURE)
    logs.mkdir()
    job = _job(out)
    name = f"tpu_driver.host.user.log.INFO.{time.strftime('%Y%m%d-%H%M%S')}.77"
    (logs / name).write_text(f"Log file created at: {time.strftime('%Y/%m/%d %H:%M:%S')}\n{logged}")
    (launch,) = read(job, WatcherCounters(), lambda _: True)["records"]
    os.close(job.texts[0].file)
    assert (launch["pid"], launch["premapped_bytes"], launch["premapped_failures"]) == (77, 8 << 30, 1)


def test_a_failure_that_is_logged_and_printed_is_one(tmp_path: Path) -> None:
    out, logged = tmp_path / "out", time.strftime("E%m%d %H:%M:%S.000001", time.gmtime())
    out.write_text(f"{logged}  4711 tpu_hal.cc:1] {FAILURE}jax.errors.JaxRuntimeError: {FAILURE}{FAILURE}")
    job = _job(out)
    (finding,) = read(job, WatcherCounters(), lambda _: True)["findings"]
    os.close(job.texts[0].file)
    assert finding["count"] == 2  # the third is another


@pytest.mark.parametrize(
    ("line", "cause"),
    [
        ("OSError: [Errno 28] No space left on device: '/data/ckpt'", "disk_full"),
        ("Could not find cuda drivers on your machine\nwrite /data/ckpt: no space left on device", "disk_full"),
        ("jax.errors.JaxRuntimeError: INTERNAL: it did not work", "compiler_crash"),
    ],
)
def test_a_commands_output_is_a_tpu_jobs_without_naming_one(tmp_path: Path, line: str, cause: str) -> None:
    out = tmp_path / "out"
    out.write_text(f"Traceback (most recent call last):\n{line}\n")
    assert _causes(_job(out)) == [cause]


def test_what_programs_print_and_go_on_needs_a_text_that_names_a_tpu(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("it failed: exit code 137\n")
    assert _causes(_job(out)) == [Cause.UNKNOWN_FAILURE]
