"""One followed file: cuts anywhere in it, its last line, holes, and what it costs."""

from __future__ import annotations

import os
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.logs.sites import DEAD_PID, HEADER, dull, line, name, numbers, parse_slowly, scanner
from tpuwatch.core.clock import ManualClock
from tpuwatch.logs.parse.parser import LogParser, StreamKind
from tpuwatch.logs.tail import followed_file
from tpuwatch.logs.tail.files import HEAD_BYTES, LogFile, libtpu_file
from tpuwatch.logs.tail.followed_file import (
    CHUNK_BYTES,
    DELETED_SECONDS,
    GONE_SECONDS,
    MIN_CHUNK_BYTES,
    PROGRESS_SECONDS,
    REWRITE_SECONDS,
    FileMatch,
    FollowedFile,
)
from tpuwatch.model.events import Cursor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    Open = Callable[..., FollowedFile]


def parser(file: LogFile, offset: int, state: Mapping[str, Any]) -> LogParser:
    return LogParser(scanner(), file.kind, now=0.0, offset=offset, state=state)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / name()
    path.touch()
    return path


@pytest.fixture
def follow(log: Path, clock: ManualClock) -> Iterator[Open]:
    tails: list[FollowedFile] = []

    def open_tail(cursor: Cursor | None = None, kind: StreamKind | None = None) -> FollowedFile:
        entry = log.stat()
        cursor = cursor or Cursor(str(log), entry.st_dev, entry.st_ino, b"", 0)
        file = libtpu_file(str(log)) if kind is None else LogFile(str(log), kind)
        tails.append(FollowedFile(os.open(log, os.O_RDONLY), file, cursor, parser, clock))
        return tails[-1]

    yield open_tail
    for log in tails:
        log.close()


def append(log: Path, data: str | bytes) -> None:
    with log.open("ab") as stream:
        stream.write(data.encode() if isinstance(data, str) else data)


def drain(followed: FollowedFile) -> list[FileMatch]:
    found = followed.check()
    while followed.unread:
        found += followed.read(1 << 30)
    return found


def settle(followed: FollowedFile) -> list[FileMatch]:
    return drain(followed) + (followed.finish_quiet(0.0) or [])


TEXT_OUTPUT = "python train.py\nTESTEVENT 1\n"
TEXT = (HEADER + line(1) + "unprefixed: Größe ✓ 日本語\n\n" + line(2) + dull(1) + line(3)).encode()


@pytest.mark.parametrize("cut", range(0, len(TEXT), 3))
def test_a_cut_at_any_byte_neither_loses_nor_doubles(log: Path, follow: Open, cut: int) -> None:
    followed = follow()
    append(log, TEXT[:cut])
    found = settle(followed)
    append(log, TEXT[cut:])
    assert numbers(found + settle(followed)) == [1, 2, 3]


@pytest.mark.parametrize("cut", range(0, len(TEXT), 7))
def test_a_file_resumed_at_any_byte_neither_loses_nor_doubles(log: Path, follow: Open, cut: int) -> None:
    append(log, TEXT[:cut])
    followed = follow()
    found = drain(followed)
    append(log, TEXT[cut:])
    assert numbers(found + settle(follow(followed.cursor()))) == [1, 2, 3]


def test_the_last_record_waits_for_quiet(log: Path, follow: Open, clock: ManualClock) -> None:
    followed = follow()
    append(log, HEADER + line(1))
    assert drain(followed) == []
    assert followed.unsettled
    clock.advance(0.04)
    assert followed.finish_quiet(0.05) is None
    clock.advance(0.02)
    assert numbers(followed.finish_quiet(0.05) or []) == [1]
    assert followed.finish_quiet(0.05) is None
    assert not followed.unsettled


def test_a_file_that_was_quiet_before_it_was_opened_need_not_wait(log: Path, follow: Open, clock: ManualClock) -> None:
    append(log, HEADER + line(1) + line(2).rstrip())
    os.utime(log, (clock.time() - 3600, clock.time() - 3600))
    followed = follow()
    drain(followed)
    assert numbers(followed.finish_quiet(0.05) or []) == [1, 2]  # and its process is gone


def test_a_record_is_quiet_since_it_was_written_and_not_since_it_was_found(
    log: Path, follow: Open, clock: ManualClock
) -> None:
    followed = follow()
    drain(followed)
    clock.advance(0.1)
    append(log, HEADER + line(1))
    os.utime(log, (0, clock.time() - 0.06))
    drain(followed)
    assert numbers(followed.finish_quiet(0.05) or []) == [1]


def test_what_was_written_since_the_last_check_is_no_older(log: Path, follow: Open, clock: ManualClock) -> None:
    followed = follow()
    drain(followed)
    clock.advance(0.04)
    append(log, HEADER + line(1))
    os.utime(log, (0, clock.time() - 3600))
    drain(followed)
    assert followed.finish_quiet(0.05) is None
    assert followed.quiet_seconds == pytest.approx(0.04)


def test_a_file_from_the_future_settles_as_any_other(log: Path, follow: Open, clock: ManualClock) -> None:
    append(log, HEADER + line(1))
    os.utime(log, (clock.time() + 1e8, clock.time() + 1e8))
    followed = follow()
    drain(followed)
    assert followed.finish_quiet(0.05) is None
    clock.advance(0.06)
    assert numbers(followed.finish_quiet(0.05) or []) == [1]


def test_the_end_of_a_process_is_known_by_its_pid(follow: Open) -> None:
    followed = follow()
    for pid, ended in ((os.getpid(), False), (1, False), (DEAD_PID, True), (10**9 * 9, True)):
        followed.renamed(libtpu_file(name(pid=pid)))
        assert followed.ended is ended, pid


@pytest.mark.parametrize(("deleted", "seconds"), [(False, GONE_SECONDS), (True, DELETED_SECONDS)])
def test_a_jobs_file_has_ended_when_its_name_is_gone_and_it_was_quiet_for_long(
    log: Path, follow: Open, clock: ManualClock, deleted: bool, seconds: float
) -> None:
    followed = follow(kind=StreamKind.TEXT)
    if deleted:
        log.unlink()
        followed.check()
    followed.unlisted = True
    clock.advance(seconds - 1)
    assert not followed.ended
    clock.advance(2)
    assert followed.ended
    followed.unlisted = followed.deleted = False
    assert not followed.ended


def test_a_head_grows_with_its_file(log: Path, follow: Open) -> None:
    followed = follow()
    append(log, HEADER)
    drain(followed)
    assert followed.cursor().head == HEADER.encode()
    append(log, dull(50))
    drain(followed)
    assert followed.cursor().head == (HEADER + dull(50)).encode()[:HEAD_BYTES]
    assert followed.rewrites == 0


def test_a_cursor_with_a_short_head_fits_its_grown_file(log: Path, follow: Open) -> None:
    append(log, HEADER + line(1))
    first = follow()
    assert numbers(settle(first)) == [1]
    append(log, dull(50) + line(2))
    second = follow(first.cursor())
    assert numbers(settle(second)) == [2]
    assert second.rewrites == 0


@pytest.mark.parametrize("text", ["other\n" + dull(20), HEADER[:20], ""])
def test_a_cursor_of_another_file_with_the_same_inode_is_not_used(log: Path, follow: Open, text: str) -> None:
    append(log, HEADER + dull(10))
    first = follow()
    drain(first)
    cursor = first.cursor()
    log.write_text(text + line(2))
    second = follow(cursor)
    assert numbers(settle(second)) == [2]
    assert second.rewrites == 1


def rewrite(log: Path, text: str, at: int) -> None:
    """Write a file again `at` some second; it was last accessed before."""
    log.write_text(text)
    os.utime(log, (1, at))


def test_a_file_rewritten_with_the_same_bytes_is_read_again(log: Path, follow: Open, clock: ManualClock) -> None:
    rewrite(log, TEXT_OUTPUT, 2)
    followed = follow(kind=StreamKind.TEXT)
    found = settle(followed)
    for run in range(1, 10):
        rewrite(log, TEXT_OUTPUT, 2 + run)
        found += settle(followed)
        clock.advance(1)
    clock.advance(REWRITE_SECONDS)
    found += settle(followed)
    assert numbers(found) == [1] * 10
    assert len({file_match.match.key for file_match in found}) == 10
    assert (followed.rewrites, followed.lost_bytes) == (9, 0)


def test_a_file_rewritten_with_the_same_bytes_while_it_was_not_followed(
    log: Path, follow: Open, clock: ManualClock
) -> None:
    rewrite(log, TEXT_OUTPUT, 2)
    first = follow(kind=StreamKind.TEXT)
    assert numbers(settle(first)) == [1]
    cursor = first.cursor()
    rewrite(log, TEXT_OUTPUT, int(clock.time()) + 1)
    second = follow(cursor, StreamKind.TEXT)
    assert settle(second) == []
    third = follow(second.cursor(), StreamKind.TEXT)  # before it is certain
    clock.advance(REWRITE_SECONDS)
    assert numbers(settle(third)) == [1]
    assert settle(follow(third.cursor(), StreamKind.TEXT)) == []


def test_an_append_that_is_not_complete_is_no_rewrite(log: Path, follow: Open, clock: ManualClock) -> None:
    rewrite(log, TEXT_OUTPUT, 2)
    followed = follow(kind=StreamKind.TEXT)
    settle(followed)
    for at in range(3, 10):
        os.utime(log, (1, at))  # a write sets mtime first,
        assert settle(followed) == []
        clock.advance(REWRITE_SECONDS / 2)
        append(log, "TESTEVENT 2\n")
        os.utime(log, (1, at))  # and the size when the bytes are there
        assert numbers(settle(followed)) == [2]
    assert followed.rewrites == 0


def test_a_file_that_is_touched_is_not_rewritten(log: Path, follow: Open, clock: ManualClock) -> None:
    rewrite(log, TEXT_OUTPUT, 2)
    followed = follow(kind=StreamKind.TEXT)
    settle(followed)
    os.utime(log, (3, 3))
    assert settle(followed) == []
    clock.advance(REWRITE_SECONDS)
    assert settle(followed) == []
    os.utime(log, (4, 3))  # read after it
    assert settle(follow(followed.cursor(), StreamKind.TEXT)) == []
    assert followed.rewrites == 0


def test_on_a_network_file_system_a_new_mtime_is_no_rewrite(
    log: Path, follow: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(followed_file, "is_on_network", lambda _device: True)
    rewrite(log, TEXT_OUTPUT, 2)
    followed = follow(kind=StreamKind.TEXT)
    settle(followed)
    for at in (3, 4):
        os.utime(log, (1, at))
        assert settle(followed) == []
    clock.advance(REWRITE_SECONDS)
    assert settle(followed) == []
    assert followed.rewrites == 0


def test_a_file_rewritten_and_longer_is_recognised_by_the_bytes_that_were_read(log: Path, follow: Open) -> None:
    banner = "a banner that each run begins with\n" * 20
    append(log, banner + "loss 0.1\n" * 20 + "TESTEVENT 1\n")
    followed = follow(kind=StreamKind.TEXT)
    assert numbers(settle(followed)) == [1]
    followed.moved_cursor()
    append(log, "not read\n")
    followed.check()
    log.write_text(banner + "loss 0.2\n" * 40 + "TESTEVENT 2\n")
    assert numbers(settle(followed)) == [2]
    assert (followed.rewrites, followed.lost_bytes) == (1, len("not read\n"))


def test_a_rewritten_file_is_no_history(log: Path, follow: Open) -> None:
    append(log, HEADER + dull(20))
    cursor = Cursor(str(log), log.stat().st_dev, log.stat().st_ino, b"", 0, history_until=log.stat().st_size)
    followed = follow(cursor)
    settle(followed)
    os.truncate(log, 0)
    append(log, line(1))
    assert [file_match.history for file_match in settle(followed)] == [False]


def step_of(followed: FollowedFile, now: float) -> int | None:
    """The step that the file shows, once all of it is read."""
    drain(followed)
    shown = followed.take_progress(now)
    return None if shown is None else shown.progress.step


@pytest.mark.parametrize(("kind", "step"), [(StreamKind.TEXT, 100), (StreamKind.LIBTPU, None)])
def test_only_the_output_of_a_job_shows_how_far_it_is(
    log: Path, follow: Open, kind: StreamKind, step: int | None
) -> None:
    followed = follow(kind=kind)
    append(log, "step 100: loss: 2.5000, 0.004 s/step\n")
    assert step_of(followed, 0.0) == step


def test_what_is_history_does_not_show_how_far_a_job_is(log: Path, follow: Open) -> None:
    append(log, "step 100: loss: 2.5000, 0.004 s/step\n")
    size = log.stat().st_size
    followed = follow(
        Cursor(str(log), log.stat().st_dev, log.stat().st_ino, b"", 0, history_until=size), StreamKind.TEXT
    )
    assert step_of(followed, 0.0) is None
    append(log, "step 200: loss: 2.4000, 0.004 s/step\n")
    assert step_of(followed, 0.0) == 200


def test_how_far_a_job_is_is_shown_once_and_not_too_often_and_of_whole_lines(log: Path, follow: Open) -> None:
    followed = follow(kind=StreamKind.TEXT)
    append(log, "step 100: loss: 2.5000, 0.004 s/step\nst")
    assert step_of(followed, 0.0) == 100
    append(log, "ep 200: loss: 2.4000, 0.004 s/step\n")
    assert step_of(followed, 0.9 * PROGRESS_SECONDS) is None
    assert step_of(followed, PROGRESS_SECONDS) == 200
    assert step_of(followed, 2 * PROGRESS_SECONDS) is None
    append(log, "Saving.\n")
    assert step_of(followed, 3 * PROGRESS_SECONDS) is None


def test_a_cursor_is_given_only_when_it_moved(log: Path, follow: Open) -> None:
    followed = follow()
    append(log, HEADER + line(1))
    settle(followed)
    assert followed.moved_cursor() is not None
    assert followed.moved_cursor() is None
    assert follow(followed.reported).moved_cursor() is None


def read(followed: FollowedFile, limit: int = 1 << 30) -> int:
    """Read once; how many bytes it was."""
    before = followed.bytes_read
    followed.read(limit)
    return followed.bytes_read - before


def test_a_read_takes_one_chunk_at_most(log: Path, follow: Open) -> None:
    followed = follow()
    append(log, dull(1) * 40_000)
    followed.check()
    assert [read(followed) for _ in range(6)] == [1 << 14, 1 << 15, 1 << 16, 1 << 17, CHUNK_BYTES, CHUNK_BYTES]
    assert read(followed, 1000) == 1000
    assert read(followed) == CHUNK_BYTES  # a small one says nothing of the speed


def test_a_text_that_turns_slow_is_read_in_small_chunks_until_it_is_fast_again(
    log: Path, follow: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed = follow()
    append(log, dull(1) * 40_000)
    followed.check()
    while read(followed) < CHUNK_BYTES:
        pass
    with monkeypatch.context() as patch:
        parse_slowly(clock, patch)
        assert [read(followed) for _ in range(3)] == [CHUNK_BYTES, MIN_CHUNK_BYTES, MIN_CHUNK_BYTES]
    assert [read(followed) for _ in range(2)] == [MIN_CHUNK_BYTES, 2 * MIN_CHUNK_BYTES]


def test_a_line_without_end_takes_bounded_memory(log: Path, follow: Open) -> None:
    size = 64 << 20
    with log.open("wb") as stream:
        for _ in range(size >> 20):
            stream.write(b"x" * (1 << 20))
        stream.write(b"\n" + line(1).encode())
    followed = follow()
    tracemalloc.start()
    found = settle(followed)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert numbers(found) == [1]
    assert peak < 8 << 20


def test_nothing_but_a_hole_is_passed_at_once(log: Path, follow: Open) -> None:
    followed = follow()
    os.truncate(log, 1 << 40)
    assert drain(followed) == []
    assert followed.bytes_read == 0
    assert followed.position == 1 << 40
    append(log, line(1))
    assert numbers(settle(followed)) == [1]
    assert followed.bytes_read < 10_000


def test_a_file_that_shrinks_between_check_and_read_does_no_harm(log: Path, follow: Open) -> None:
    followed = follow()
    append(log, HEADER + line(1))
    followed.check()
    os.truncate(log, 0)
    assert followed.read(1 << 20) == []
    assert followed.bytes_read == 0
    followed.check()
    assert followed.unread == 0
