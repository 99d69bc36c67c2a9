"""What holds for all tests: how they run side by side, at any speed, and that none touches anybody's home."""

from __future__ import annotations

import os
import signal
import tempfile
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator


# A machine that is busy with other things is no fault of a test.
settings.register_profile("any machine", deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("few", settings.get_profile("any machine"), max_examples=25)  # for `make test`
settings.load_profile("any machine")

IN_MEMORY = Path("/dev/shm")  # noqa: S108 (a file system, for directories of pytest's own)
ROOM_BYTES = 4 << 30  # more than the files of all tests take


def pytest_configure() -> None:
    """Signals are as a terminal leaves them, and files of tests, of which many are flushed to disk, in memory."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits it ignored
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # as does what nohup starts
    if _is_roomy(IN_MEMORY):
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(IN_MEMORY))


def _is_roomy(place: Path) -> bool:
    """Whether programs that tests write there can run, and there is room."""
    try:
        found = os.statvfs(place)
    except OSError:
        return False
    return (
        os.access(place, os.W_OK)
        and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
        and found.f_bavail * found.f_frsize > ROOM_BYTES
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """One more than there are processors: many tests wait for processes that they started."""
    return len(os.sched_getaffinity(0)) + 1


def pytest_collection(session: pytest.Session) -> None:
    """Before all tests are collected, each of those that run side by side begins to import them at another one.

    pytest rewrites and compiles a module at its first import, which takes longer than all else of the collection. So
    each does a part of it, and finds the rest done by the others.
    """
    worker = getattr(session.config, "workerinput", None)
    if worker is None or session.config.args != session.config.getini("testpaths"):
        return
    names = sorted(".".join(path.relative_to(ROOT).with_suffix("").parts) for path in ROOT.glob("tests/**/test_*.py"))
    first = len(names) * int(worker["workerid"].removeprefix("gw")) // worker["workercount"]
    for name in (*names[first:], *names[:first]):
        with suppress(Exception, pytest.skip.Exception):  # reported when it is collected
            import_module(name)


@pytest.fixture(scope="session", autouse=True)
def state_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Plans, records of launches and compiled patterns go to directories of the run's own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture
def open_place() -> Iterator[Path]:
    """A directory that every user gets to. Those above tmp_path are root's alone: any run of pytest makes them so."""
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        yield Path(place)
