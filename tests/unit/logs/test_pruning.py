"""Which of libtpu's old log files are removed, and which are spared."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tpuwatch.host.procfs import Process, ProcFs, Stat
from tpuwatch.logs.pruning import PruneResult, Spared, prune

NOW, DAY = 1_800_000_000.0, 86_400.0
NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes root")


class Machine(ProcFs):
    """Processes as a test says them to be: who lives since when, who has which files open, who hides that."""

    def __init__(self) -> None:
        super().__init__()
        self.started: dict[int, float] = {}
        self.open: dict[int, set[Path]] = {}
        self.hiding: set[int] = set()
        self.blind = False

    def host_name(self) -> str:
        return "vm"

    def sees_all(self) -> bool:
        return not self.blind

    def pids(self) -> list[int]:
        return [*self.open, *self.hiding]

    def numbered(self, numbers: Any) -> dict[int, list[Process]]:
        return {pid: [Process(pid, 1, started)] for pid, started in self.started.items() if pid in numbers}

    def writing_named(self, pid: int, part: str) -> set[tuple[int, int]]:
        if pid in self.hiding:
            raise PermissionError
        entries = [path.stat() for path in self.open[pid] if part in str(path)]
        return {(entry.st_dev, entry.st_ino) for entry in entries}

    def stat(self, pid: int) -> Stat:
        return Stat(f"job{pid}", kernel=False, started_ticks=1)


class Place:
    """A log directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.machine = Machine()

    def log(self, pid: int, days: float, *, severity: str = "INFO", kib: int = 4, host: str = "vm") -> Path:
        path = self.directory / f"tpu_driver.{host}.me.log.{severity}.20270101-{100_000 + int(days):06}.{pid}"
        path.write_bytes(b"x" * (kib << 10))
        os.utime(path, (NOW - days * DAY, NOW - days * DAY))
        return path

    def prune(
        self, *, days: float = 14, mib: float = 1000, uid: int | None = None, dry_run: bool = False
    ) -> PruneResult:
        return prune(
            [self.directory], days=days, mib=mib, now=NOW, uid_only=uid, processes=self.machine, dry_run=dry_run
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def spared(pruned: PruneResult) -> dict[str, Spared | None]:
    return {old.path: old.spared for old in pruned.spared}


def test_files_that_are_too_old_are_removed(place: Place) -> None:
    old, young = place.log(1, 15), place.log(2, 13)
    pruned = place.prune()
    assert [removed.path for removed in pruned.removed] == [str(old)]
    assert (old.exists(), young.exists()) == (False, True)
    assert pruned.removed[0].why == "it is older than 14 days"
    assert (pruned.freed_bytes, pruned.left_bytes) == (4096, 4096)
    assert pruned.summary() == "Removed 1 log files of libtpu (4 KiB); 4 KiB are left, and 0 old files were spared."


def test_the_oldest_go_first_until_the_rest_is_small_enough(place: Place) -> None:
    logs = [place.log(pid, pid, kib=512) for pid in (1, 2, 3, 4)]
    pruned = place.prune(mib=1)
    assert [removed.path for removed in pruned.removed] == [str(logs[3]), str(logs[2])]
    assert pruned.left_bytes == 1 << 20
    assert "more than 1 MiB" in pruned.removed[0].why


def test_nothing_is_removed_where_nothing_has_to_be(place: Place) -> None:
    place.log(1, 1)
    assert (place.prune().removed, place.prune().spared) == ((), ())
    pruned = prune([place.directory / "none"], days=1, mib=1, now=NOW, uid_only=None, processes=place.machine)
    assert pruned == PruneResult((), (), 0, ())


def test_a_dry_run_says_the_same_and_removes_nothing(place: Place) -> None:
    log = place.log(1, 15)
    planned = place.prune(dry_run=True)
    assert log.exists()
    assert place.prune() == planned
    assert not log.exists()


def test_only_regular_files_of_libtpus_names_are_touched(tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    place, outside = Place(tmp_path / "logs"), tmp_path / "precious"
    outside.write_text("mine")
    name = "tpu_driver.vm.me.log.INFO.20270101-100000."
    (place.directory / f"{name}1").symlink_to(outside)
    (place.directory / f"{name}2").mkdir()
    os.mkfifo(place.directory / f"{name}3")
    (place.directory / "tpu_driver.INFO").symlink_to(f"{name}1")
    for other in ("tpu_driver.log", "notes.txt", f"{name}4.gz", f"x{name}4"):
        (place.directory / other).write_text("")
    for path in (*place.directory.iterdir(), outside):
        os.utime(path, (0, 0), follow_symlinks=False)
    before = sorted(place.directory.iterdir())
    assert place.prune(days=1, mib=0) == PruneResult((), (), 0, ())
    assert sorted(place.directory.iterdir()) == before
    assert outside.read_text() == "mine"


@pytest.mark.skipif(os.geteuid() != 0, reason="takes root to have another user's link")
def test_another_users_link_is_no_directory_of_ours(place: Place, tmp_path: Path) -> None:
    log = place.log(1, 15)
    (tmp_path / "link").symlink_to(tmp_path)
    os.lchown(tmp_path / "link", NOBODY, NOBODY)
    pruned = prune([tmp_path / "link"], days=1, mib=1, now=NOW, uid_only=None, processes=place.machine)
    assert log.exists()
    assert ["another user's link" in problem for problem in pruned.problems] == [True]


def test_a_file_that_is_open_is_spared_however_old_it_is(place: Place) -> None:
    log, other = place.log(1, 99), place.log(2, 99)
    place.machine.open[5] = {log}
    assert spared(place.prune()) == {str(log): Spared.OPEN}
    assert (log.exists(), other.exists()) == (True, False)


def test_of_a_live_process_the_newest_file_of_each_kind_is_spared(place: Place) -> None:
    older, newest, warning = place.log(1, 40), place.log(1, 20), place.log(1, 30, severity="WARNING")
    place.machine.started[1] = NOW - 50 * DAY
    assert spared(place.prune()) == {str(newest): Spared.LIVE, str(warning): Spared.LIVE}
    assert not older.exists()


def test_a_later_process_of_the_same_number_spares_nothing(place: Place) -> None:
    log = place.log(1, 20)
    place.machine.started[1] = NOW - 19 * DAY
    assert place.prune().spared == ()
    assert not log.exists()


@pytest.mark.parametrize("how", ["hidden", "blind", "elsewhere"])
def test_where_not_all_can_be_seen_more_is_spared(place: Place, how: str) -> None:
    host = "other" if how == "elsewhere" else "vm.example"
    place.machine.hiding = {9} if how == "hidden" else set()
    place.machine.blind = how == "blind"
    recent, old = place.log(2, 0.5, host=host), place.log(3, 2, host=host)
    living = [place.log(1, 40, host=host), place.log(1, 20, host=host)]
    place.machine.started[1] = NOW - 50 * DAY
    pruned = place.prune(mib=0)
    assert spared(pruned) == {str(recent): Spared.RECENT, **{str(path): Spared.LIVE for path in living}}
    assert not old.exists()


@as_root
def test_without_root_only_ones_own_files_are_removed(place: Place) -> None:
    mine, other = place.log(1, 20), place.log(2, 20)
    os.chown(mine, NOBODY, NOBODY)
    assert spared(place.prune(uid=NOBODY)) == {str(other): Spared.FOREIGN}
    assert (mine.exists(), other.exists()) == (False, True)


@as_root
def test_what_may_not_be_removed_is_reported_and_left(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    log = place.log(1, 20)
    os.chown(log, NOBODY, NOBODY)
    place.directory.chmod(0o755)  # root's, so that others remove nothing there
    monkeypatch.chdir(place.directory)  # what is above it they may not even enter
    place.directory = Path()
    os.seteuid(NOBODY)
    try:
        pruned = place.prune(uid=NOBODY)
    finally:
        os.seteuid(0)
    assert (pruned.problems, spared(pruned)) == ((), {f"./{log.name}": Spared.REFUSED})
    assert log.exists()


def test_a_file_that_has_changed_meanwhile_is_spared(place: Place) -> None:
    log = place.log(1, 20)
    victim = place.directory / "victim"
    victim.write_text("mine")

    class Switching(Machine):
        def pids(self) -> list[int]:  # after the files are listed, before one is removed
            log.unlink()
            log.symlink_to(victim)
            return []

    place.machine = Switching()
    assert spared(place.prune()) == {str(log): Spared.CHANGED}
    assert (log.is_symlink(), victim.read_text()) == (True, "mine")


@contextmanager
def holding(path: Path, mode: str = "ab") -> Iterator[None]:
    """While another process has the file open."""
    script = "import sys; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", script, str(path), mode]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"open\n"
        yield
        process.stdin.close()


def test_a_real_process_that_has_a_file_open_saves_it(place: Place) -> None:
    log = place.log(1, 99, host=ProcFs().host_name())
    everything: dict[str, Any] = {"days": 1, "mib": 0, "now": NOW, "uid_only": None, "processes": ProcFs()}
    with holding(log):
        assert spared(prune([place.directory], **everything)) == {str(log): Spared.OPEN}
        log.rename(place.directory / log.name.replace("INFO", "ERROR"))
        assert [old.spared for old in prune([place.directory], **everything).spared] == [Spared.OPEN]
    assert len(prune([place.directory], **everything).removed) == 1


def test_a_real_process_that_only_reads_a_file_as_tpuwatch_does_saves_nothing(place: Place) -> None:
    log = place.log(1, 99, host=ProcFs().host_name())
    with holding(log, "rb"):
        pruned = prune([place.directory], days=1, mib=0, now=NOW, uid_only=None, processes=ProcFs())
    assert [old.path for old in pruned.removed] == [str(log)]
