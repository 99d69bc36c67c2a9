"""Wake-ups by inotify, for real: every wait here is for an event and has a deadline."""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from watchdog.events import DirCreatedEvent, FileCreatedEvent, FileModifiedEvent, FileMovedEvent, FileSystemEvent
from watchdog.observers.inotify import InotifyObserver

from tests.unit.logs.sites import HEADER, Site, line, name, numbers
from tpuwatch.logs.tail import fs_events
from tpuwatch.logs.tail.follow import (
    ACTIVE_SECONDS,
    BUSY_POLL_SECONDS,
    BUSY_POLLS,
    IDLE_POLL_SECONDS,
    POLL_SECONDS,
)
from tpuwatch.logs.tail.fs_events import EXHAUSTED_SECONDS, MAX_EVENTS, SUSPEND_SECONDS, FsEvents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import NoReturn

DEADLINE = 60.0
ROUNDS = 20  # the follower makes one a second
MAX_QUEUED = Path("/proc/sys/fs/inotify/max_queued_events")

WRITER = """
import sys
files = [open(path, "ab", buffering=0) for path in sys.argv[2:]]
for number in range(int(sys.argv[1])):
    files[number % 2].write(b"x")
"""


class Woken:
    """A waker whose wake-ups can be waited for."""

    def __init__(self) -> None:
        self.event = threading.Event()
        self.hints = FsEvents(self.event.set)

    def by(self, path: Path, seconds: float = DEADLINE) -> bool:
        """Whether a write to `path` wakes, within `seconds`."""
        self.event.clear()
        self.hints.take(0.0)
        path.write_text("words")
        while self.event.wait(seconds):
            self.event.clear()
            if str(path) in self.hints.take(0.0):
                return True
        return False


@pytest.fixture
def woken() -> Iterator[Woken]:
    woken = Woken()
    yield woken
    woken.hints.close()


def wait_for(site: Site, number: int) -> None:
    """Poll whenever woken, and not otherwise, until an event is seen."""
    while number not in numbers(site.matches):
        assert site.woken.wait(DEADLINE)
        site.woken.clear()
        site.settle(0.0)


def test_a_write_wakes_with_the_path_of_its_file(woken: Woken, tmp_path: Path) -> None:
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    assert woken.by(tmp_path / "log")


def test_a_directory_behind_a_link_is_watched_where_it_really_is(woken: Woken, tmp_path: Path) -> None:
    (tmp_path / "real" / "logs").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real/logs")
    woken.hints.watch({str(tmp_path / "link"): ""}, 0.0)
    assert woken.by(tmp_path / "real" / "logs" / "log")


def dispatch(fs_events_under_test: FsEvents, event: FileSystemEvent, prefix: str | None = "") -> None:
    """Hand over an event as watchdog's thread does."""
    fs_events._Handler(fs_events_under_test._inbox, prefix).dispatch(event)


def test_the_reader_is_woken_once_until_it_takes_the_paths() -> None:
    calls: list[int] = []
    inbox = fs_events._Inbox(lambda: calls.append(1))
    for _ in range(3):
        inbox.count()
        inbox.add("a")
    assert calls == [1]
    assert inbox.take() == ({"a"}, 3)
    inbox.add("b")
    assert calls == [1, 1]
    assert inbox.take() == ({"b"}, 0)


def test_only_relevant_names_wake(woken: Woken) -> None:
    dispatch(woken.hints, FileModifiedEvent("/logs/other"), "tpu_driver.")
    dispatch(woken.hints, FileMovedEvent("/logs/a", "/logs/b"), "tpu_driver.")
    dispatch(woken.hints, FileCreatedEvent("/above/file"), None)
    assert not woken.event.is_set()
    dispatch(woken.hints, FileMovedEvent("/logs/a", "/logs/tpu_driver.b"), "tpu_driver.")
    assert woken.event.is_set()
    dispatch(woken.hints, DirCreatedEvent("/above/logs"), None)
    assert woken.hints.take(0.0) == {"/logs/tpu_driver.b", "/above/logs"}


def test_a_new_directory_wakes(woken: Woken, tmp_path: Path) -> None:
    logs = tmp_path / "a" / "b" / "logs"
    woken.hints.watch({str(logs): ""}, 0.0)
    for directory in (tmp_path / "a", tmp_path / "a" / "b", logs):
        woken.event.clear()
        woken.hints.take(0.0)
        directory.mkdir()
        assert woken.event.wait(DEADLINE), directory
        woken.hints.watch({str(logs): ""}, 0.0)
    assert woken.by(logs / "log")


def test_a_directory_that_is_deleted_and_made_again_is_watched_again(woken: Woken, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    woken.hints.watch({str(logs): ""}, 0.0)
    shutil.rmtree(logs)
    logs.mkdir()  # often with the same inode: then only the dead thread of the old watch shows it, some time later
    for _ in range(ROUNDS):
        woken.hints.watch({str(logs): ""}, 0.0)
        if woken.by(logs / "log", 1.0):
            return
    pytest.fail("the new directory is not watched")


def test_a_directory_that_is_replaced_is_watched_in_its_new_place(woken: Woken, tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    woken.hints.watch({str(logs): ""}, 0.0)
    logs.rename(tmp_path / "old")
    logs.mkdir()
    woken.hints.watch({str(logs): ""}, 0.0)
    assert woken.by(logs / "log")
    assert woken.hints.restarts == 0


def test_a_dead_emitter_is_replaced(woken: Woken, tmp_path: Path) -> None:
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    for emitter in woken.hints.emitters:
        emitter.stop()
        emitter.join(DEADLINE)
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    assert woken.hints.restarts == 2  # the directory's and its parent's
    assert woken.by(tmp_path / "log")


def test_a_dead_observer_is_replaced(woken: Woken, tmp_path: Path) -> None:
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    observer = woken.hints._observer
    assert observer is not None
    observer.stop()
    observer.join(DEADLINE)
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    assert woken.hints.restarts == 1
    assert woken.by(tmp_path / "log")


def refuse(code: int) -> Callable[..., NoReturn]:
    """Stands in for a call that fails for want of something."""

    def call(*_: object, **__: object) -> NoReturn:
        raise OSError(code, os.strerror(code))

    return call


def test_an_unwatchable_directory_does_no_harm(woken: Woken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(InotifyObserver, "schedule", refuse(errno.ENOENT))
        woken.hints.watch({str(tmp_path): ""}, 0.0)
        assert not woken.hints.emitters
    assert woken.hints.problem == ""
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    assert woken.by(tmp_path / "log")


def no_thread(*_: object) -> NoReturn:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("call", "fail"),
    [
        ("__init__", refuse(errno.EMFILE)),  # no more instances
        ("schedule", refuse(errno.ENOSPC)),  # no more watches
        ("start", no_thread),
    ],
)
def test_where_inotify_is_exhausted_it_is_tried_again_later(
    woken: Woken,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    call: str,
    fail: Callable[..., NoReturn],
) -> None:
    caplog.set_level("INFO")
    with monkeypatch.context() as patch:
        patch.setattr(InotifyObserver, call, fail)
        for now in (0.0, EXHAUSTED_SECONDS):
            woken.hints.watch({str(tmp_path): ""}, now)
            assert woken.hints.suspended(now)
            assert "sysctl" in woken.hints.problem
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    woken.hints.watch({str(tmp_path): ""}, 2 * EXHAUSTED_SECONDS - 1)
    assert not woken.hints.emitters
    assert woken.hints.resume_due(2 * EXHAUSTED_SECONDS)
    woken.hints.watch({str(tmp_path): ""}, 2 * EXHAUSTED_SECONDS)
    assert (woken.hints.problem, woken.hints.suspended(2 * EXHAUSTED_SECONDS)) == ("", False)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert woken.by(tmp_path / "log")


def test_a_flood_where_not_all_is_watched_suspends_what_is(
    woken: Woken, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    (tmp_path / "new").mkdir()
    with monkeypatch.context() as patch:
        patch.setattr(InotifyObserver, "schedule", refuse(errno.ENOSPC))
        woken.hints.watch({str(tmp_path): "", str(tmp_path / "new"): ""}, 0.0)
    assert woken.hints.problem
    assert woken.by(tmp_path / "log")  # what was watched before stays so
    for _ in range(MAX_EVENTS + 1):
        dispatch(woken.hints, FileModifiedEvent("/logs/log"))
    woken.hints.take(0.0)
    assert not woken.hints.emitters


def test_a_flood_of_events_suspends_watching(woken: Woken, tmp_path: Path) -> None:
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    for _ in range(MAX_EVENTS + 1):  # though none of them matters
        dispatch(woken.hints, FileModifiedEvent("/logs/other"), "tpu_driver.")
    assert woken.event.is_set()
    woken.hints.take(0.0)
    assert woken.hints.suspended(0.0)
    woken.hints.watch({str(tmp_path): ""}, SUSPEND_SECONDS / 2)
    assert not woken.hints.emitters
    assert not woken.hints.suspended(SUSPEND_SECONDS)
    woken.hints.watch({str(tmp_path): ""}, SUSPEND_SECONDS)
    assert woken.by(tmp_path / "log")


def test_a_flood_that_goes_on_is_suspended_for_longer_and_longer(woken: Woken, tmp_path: Path) -> None:
    def flood(now: float) -> float:
        """Have one; for how long watching is suspended."""
        woken.hints.watch({str(tmp_path): ""}, now)
        for _ in range(MAX_EVENTS + 1):
            dispatch(woken.hints, FileModifiedEvent("/logs/log"))
        woken.hints.take(now)
        return next(seconds for seconds in range(1, 100) if not woken.hints.suspended(now + seconds))

    now, pauses = 0.0, []
    for _ in range(5):
        pauses.append(flood(now))
        now += pauses[-1] + 0.8
    assert pauses == [5, 10, 20, 40, 40]
    assert flood(now + 60.0) == SUSPEND_SECONDS


def test_events_that_come_slowly_are_no_flood(woken: Woken, tmp_path: Path) -> None:
    woken.hints.watch({str(tmp_path): ""}, 0.0)
    for second in range(1, 5):
        for _ in range(MAX_EVENTS):
            dispatch(woken.hints, FileModifiedEvent("/logs/log"))
        woken.hints.take(float(second))
    assert woken.hints.emitters


def poll_in_a_flood(site: Site) -> None:
    """Poll after so many events that they are suspended."""
    site.follower.watch()
    assert site.follower._fs_events is not None
    for _ in range(MAX_EVENTS + 1):
        dispatch(site.follower._fs_events, FileModifiedEvent("/logs/log"))
    site.poll()


def test_a_follower_is_polled_often_after_a_flood(site: Site) -> None:
    site.append(name(), HEADER)
    os.utime(site.logs / name(), (site.clock.time(), site.clock.time()))
    poll_in_a_flood(site)
    assert site.poll().due_in == POLL_SECONDS
    site.clock.advance(1.0)
    site.poll()
    assert site.poll().due_in == IDLE_POLL_SECONDS
    site.clock.advance(SUSPEND_SECONDS)
    assert site.poll().due_in == 1.0
    assert site.follower._fs_events.emitters


def test_while_each_poll_finds_failures_polls_are_further_apart(site: Site) -> None:
    site.append(name(), HEADER)
    poll_in_a_flood(site)

    def poll(*numbers: int) -> float:
        for number in numbers:
            site.append(name(), line(number))
        site.clock.advance(POLL_SECONDS)
        os.utime(site.logs / name(), (0, site.clock.time() - 0.01))  # the writer goes on
        return site.poll().due_in

    waits = [poll(2 * number, 2 * number + 1) for number in range(BUSY_POLLS)]
    assert waits == pytest.approx([POLL_SECONDS] * (BUSY_POLLS - 1) + [BUSY_POLL_SECONDS])
    assert poll() == pytest.approx(POLL_SECONDS)


def test_after_a_flood_the_last_record_waits_for_the_next_poll_or_for_quiet(site: Site) -> None:
    site.append(name(), HEADER)
    poll_in_a_flood(site)
    for age, due in ((0.01, POLL_SECONDS), (0.03, 0.02)):  # the writer goes on; it has ended
        site.append(name(), line(1))
        site.clock.advance(POLL_SECONDS)
        os.utime(site.logs / name(), (0, site.clock.time() - age))
        assert site.poll().due_in == pytest.approx(due, abs=1e-5)


def test_a_follower_polls_often_where_inotify_is_exhausted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(InotifyObserver, "__init__", refuse(errno.EMFILE))
        site.restart()
        site.follower.watch()
    assert "inotify" in site.follower.watch_problem
    site.append(name(), HEADER + line(1))
    site.poll()
    assert site.poll().due_in <= IDLE_POLL_SECONDS
    assert numbers(site.matches) == []  # it may go on
    site.clock.advance(IDLE_POLL_SECONDS)
    site.poll()
    assert numbers(site.matches) == [1]
    site.clock.advance(EXHAUSTED_SECONDS)
    site.poll()
    assert site.follower.watch_problem == ""
    site.append(name(), line(2))
    wait_for(site, 2)


def test_a_follower_watches_again_after_a_flood(site: Site) -> None:
    poll_in_a_flood(site)
    site.clock.advance(SUSPEND_SECONDS - 0.1)
    site.poll()  # with a look around, so that the next one is not due for a second
    assert not site.follower._fs_events.emitters
    site.clock.advance(0.2)
    site.poll()
    assert site.follower._fs_events.emitters


def test_a_follower_is_woken_by_a_write(site: Site) -> None:
    site.follower.watch()
    site.poll()
    site.append(name(), HEADER + line(1))
    wait_for(site, 1)


def test_a_closed_file_that_an_event_names_is_read_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tpuwatch.logs.tail.follow.MAX_OPEN", 0)
    monkeypatch.setattr("tpuwatch.logs.tail.closed_files._CHECKS", 0)  # no looking round
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    assert not site.follower._open
    site.follower.watch()
    site.append(name(), line(2))
    wait_for(site, 2)


def test_a_quiet_file_that_an_event_names_is_read_at_once(site: Site) -> None:
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    site.settle(2 * ACTIVE_SECONDS)
    site.poll()
    assert not site.follower._active
    site.follower.watch()
    site.append(name(), line(2))
    wait_for(site, 2)


def test_a_follower_outlives_its_directory_and_its_emitters(site: Site) -> None:
    site.follower.watch()
    site.append(name(), HEADER + line(1))
    assert site.settle() == [1]
    shutil.rmtree(site.logs)
    assert site.settle() == []
    site.logs.mkdir()
    site.settle()
    site.append(name(pid=2), HEADER + line(2))
    wait_for(site, 2)
    assert site.follower._fs_events is not None
    for emitter in site.follower._fs_events.emitters:
        emitter.stop()
        emitter.join(DEADLINE)
    site.append(name(pid=2), line(3))
    assert site.settle() == [3]
    assert site.follower._fs_events.restarts == 2


@pytest.mark.skipif(
    not MAX_QUEUED.exists() or int(MAX_QUEUED.read_text()) > 100_000, reason="the queue is too long to fill"
)
def test_an_overflow_of_the_event_queue_loses_nothing(site: Site) -> None:
    paths = [site.append(name(pid=pid), HEADER) for pid in (1, 2)]
    site.settle()
    site.follower.watch()
    count = int(MAX_QUEUED.read_text()) + 1000
    command = [sys.executable, "-c", WRITER, str(count), *map(str, paths)]
    writer = subprocess.Popen(command)
    ctypes.PyDLL(None).waitpid(
        writer.pid, None, 0
    )  # keeps the interpreter's lock: watchdog's threads stand still meanwhile
    writer.returncode = 0
    site.append(name(pid=1), "\n" + line(1))
    assert site.settle() == [1]
    site.clock.advance(SUSPEND_SECONDS)
    site.settle()
    site.append(name(pid=2), "\n" + line(2))
    wait_for(site, 2)
