"""The parts of the archive. Each is had by itself: what one of them fails with keeps none of the others away."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import pwd
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tpuwatch import __version__
from tpuwatch.config import THIS_MACHINE
from tpuwatch.core import TpuwatchError, encode
from tpuwatch.web import ask_document, ask_metrics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tpuwatch.config import Config
    from tpuwatch.support.archive import Archive
    from tpuwatch.web import DaemonAddress

_NO_ENTRIES: Final = "-- No entries --"  # of journalctl
_COMMAND_SECONDS: Final = 20.0
_LOG_LINES: Final = 5000
_KERNEL_LINES: Final = 1000
_TAIL_BYTES: Final = 1 << 20
_NODES: Final = 200  # the worst
_EVENTS: Final = 1000
_FIRST_USER: Final = 1000  # the first uid of a person
_SYSTEM: Final = (  # files that tell of the machine and of nobody on it
    *("/etc/os-release", "/proc/version", "/proc/meminfo", "/proc/loadavg", "/proc/uptime", "/proc/cmdline"),
    *("/proc/modules", "/proc/pressure/memory", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/self/limits"),
    *("/proc/sys/vm/max_map_count", "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/pid_max"),
    *("/proc/sys/fs/inotify/max_user_instances", "/proc/sys/fs/inotify/max_user_watches", "/proc/sys/fs/file-nr"),
    *("/sys/kernel/mm/transparent_hugepage/enabled", "/sys/fs/cgroup/memory.max", "/proc/self/cgroup"),
)
_DOCUMENTS: Final = (  # name, what it is, document, query
    ("status.json", "the daemon's state: verdict and evidence, signals, machine", "status", ""),
    ("findings.json", "findings with their log lines", "findings", ""),
    ("launches.json", "the latest launches", "launches", "?limit=200"),
    ("nodes.json", f"the {_NODES} worst of the watched nodes", "nodes", f"?limit={_NODES}"),
    ("restarts.json", "restarts, their history and decisions", "restarts", "?limit=200"),
    ("tune.json", "what the next launches get, and why", "tune", "?limit=100"),
    ("events.json", f"the {_EVENTS} newest events, as the daemon shows them", "events", f"?limit={_EVENTS}"),
)
# What the store has, where no daemon does.
_STORED: Final = (
    ("events.json", "the newest events, of the store"),
    ("launches.json", "the latest launches, of the store"),
)


@dataclass(frozen=True, slots=True)
class Sources:
    """Where the parts come from."""

    config: Config | None  # None: it is wrong, or may not be read
    config_error: str  # why; empty: it was read
    address: DaemonAddress  # of the daemon
    run: Callable[..., subprocess.CompletedProcess[str]] = subprocess.run
    doctor: bool = True  # whether to run its checks, which ask the cloud

    @property
    def known_config(self) -> Config:
        """The configuration, or the defaults where it is not known."""
        from tpuwatch.config import Config

        return self.config or Config()

    @property
    def root(self) -> Path:
        """The root of the machine."""
        return self.known_config.host.root


def people(documents: Mapping[str, Any]) -> Iterator[str]:
    """The names of this machine's users, and of those that the daemon's documents name."""
    for entry in pwd.getpwall():
        if entry.pw_uid >= _FIRST_USER:
            yield entry.pw_name
    for name in ("SUDO_USER", "USER", "LOGNAME"):
        yield os.environ.get(name, "")
    for directory in (Path("/home"), Path.home().parent):
        with suppress(OSError):
            yield from (one.name for one in directory.iterdir() if directory != Path("/"))
    yield from _named(documents, "user")


def projects(documents: Mapping[str, Any], config: Config | None) -> Iterator[str]:
    """The ids of the projects that these name."""
    yield from _named(documents, "project")
    identity = documents.get("status.json", {}).get("identity")
    if identity:
        yield str(identity["project"]["value"])
    if config is not None and config.cloud.project:
        yield config.cloud.project


def ask_documents(address: DaemonAddress) -> tuple[dict[str, Any], dict[str, str]]:
    """The daemon's documents by the names of their files, and why others could not be had."""
    found: dict[str, Any] = {}
    failed: dict[str, str] = {}
    for name, _, document, query in _DOCUMENTS:
        try:
            found[name] = ask_document(address, document, query)
        except TpuwatchError as error:  # noqa: PERF203 # each by itself
            failed[name] = str(error)
    return found, failed


def collect(archive: Archive, sources: Sources, documents: Mapping[str, Any], failed: Mapping[str, str]) -> None:
    """Put all parts into the archive."""
    for name, what, *_ in _DOCUMENTS:
        if name in documents:
            archive.add_json(name, what, documents[name])
        else:
            _add_stored(archive, name, what, sources, failed[name])
    _try(archive, "versions.json", "versions of tpuwatch, Python and its packages", _versions)
    _try(archive, "configuration.toml", "the effective configuration", lambda: _configuration(sources))
    if sources.doctor:
        _try(archive, "doctor.json", "what `tpuwatch doctor` reports", lambda: _doctor(sources))
    _try(archive, "metrics.txt", "the daemon's metrics", lambda: ask_metrics(sources.address))
    _try(archive, "system.txt", "kernel, memory, limits and devices of the machine", lambda: _system(sources.root))
    unit = ("journalctl", "--unit=tpuwatch", f"--lines={_LOG_LINES}", "--no-pager", "--output=short-iso")
    _try(archive, "daemon.log", f"the last {_LOG_LINES} lines of the daemon's log", lambda: _output(sources, unit))
    kernel = (
        "journalctl",
        "--dmesg",
        "--priority=warning",
        f"--lines={_KERNEL_LINES}",
        "--no-pager",
        "--output=short-iso",
    )
    _try(archive, "kernel.log", "the kernel's warnings", lambda: _output(sources, kernel))
    for name, what in (
        ("audit.jsonl", "decisions about restarts"),
        ("audit-tune.jsonl", "decisions about next launches"),
    ):
        _try(archive, name, what, partial(_tail, sources.known_config.state.dir / name))


def _try(archive: Archive, name: str, what: str, get: Callable[[], Any]) -> None:
    try:
        found = get()
    except TpuwatchError as error:
        archive.miss(name, what, error)
    except OSError as error:
        archive.miss(name, what, f"{error.filename or name}: {error.strerror or error}")
    except subprocess.TimeoutExpired as error:
        archive.miss(name, what, f"{error.cmd[0]} has not ended within {_COMMAND_SECONDS:.0f} s")
    except Exception as error:  # noqa: BLE001 # one part that fails must not keep the others away
        archive.miss(name, what, f"{type(error).__name__}: {error}")
    else:
        (archive.add_text if isinstance(found, str) else archive.add_json)(name, what, found)


def _add_stored(archive: Archive, name: str, what: str, sources: Sources, why: str) -> None:
    """From the store what the daemon does not say; else that it is missing."""
    stored = dict(_STORED).get(name)
    if stored is None:
        archive.miss(name, what, why)
    else:
        _try(archive, name, stored, lambda: _of_store(name, sources, why))


def _of_store(name: str, sources: Sources, why: str) -> Any:
    from tpuwatch.model import EventDocument, LaunchesDocument
    from tpuwatch.store import StoreReader

    try:
        store = StoreReader.open(sources.known_config.state.dir)
        if name == "launches.json":
            return encode(LaunchesDocument.of(store.launches(200)))
        newest = store.events(limit=_EVENTS, newest_first=True)
    except TpuwatchError as error:
        raise TpuwatchError(f"{why}; {error}") from error
    return {"events": [encode(EventDocument.of(one)) for one in reversed(newest)]}


def _named(value: Any, key: str) -> Iterator[str]:
    """All texts that have that key, wherever in the document."""
    if isinstance(value, dict):
        for name, one in value.items():
            if name == key and isinstance(one, str):
                yield one
            yield from _named(one, key)
    elif isinstance(value, list):
        for one in value:
            yield from _named(one, key)


def _versions() -> dict[str, Any]:
    packages = {f"{one.metadata['Name']} {one.version}" for one in importlib.metadata.distributions()}
    return {
        "tpuwatch": __version__,
        "python": sys.version,
        "executable": sys.executable,
        "kernel": " ".join(platform.uname()[0:5:2]),
        "libc": " ".join(platform.libc_ver()),
        "packages": sorted(packages),  # a list: google-auth is no name of a secret
    }


def _configuration(sources: Sources) -> str:
    from tpuwatch.config import show

    if sources.config is None:
        raise TpuwatchError(sources.config_error)
    return show(sources.config)


def _doctor(sources: Sources) -> Any:
    from tpuwatch.core import ConfigError, SystemClock
    from tpuwatch.doctor import CHECKS, DoctorReport, Environment, run_checks

    error = None if sources.config is not None else ConfigError(sources.config_error)
    environment = Environment.of(sources.known_config, os.environ, SystemClock(), config_error=error)
    return encode(DoctorReport.of(run_checks(CHECKS, environment)))


def _system(root: Path) -> str:
    found = []
    for name in _SYSTEM:
        try:
            with open(root / name[1:], "rb") as file:
                text = file.read(1 << 16).decode("utf-8", "replace").rstrip()
        except OSError as error:
            text = f"({error.strerror})"
        found.append(f"== {name}\n{text}\n")
    nodes = (path for place in ("accel*", "vfio/*") for path in (root / "dev").glob(place))
    devices = sorted(f"/{path.relative_to(root)}" for path in nodes)
    found.append(f"== devices\n{' '.join(devices) or '(none)'}\n")
    for place in ("/", "/tmp", "/var/lib", "/dev/shm"):  # noqa: S108 (how much room there is)
        try:
            room = os.statvfs(root / place[1:])
        except OSError:
            continue
        found.append(f"== {place}\n{room.f_bavail * room.f_frsize} of {room.f_blocks * room.f_frsize} bytes are free\n")
    return "\n".join(found)


def _output(sources: Sources, command: tuple[str, ...]) -> str:
    if sources.root != THIS_MACHINE:
        raise TpuwatchError(f"the machine below {sources.root} has no journal")
    done = sources.run(
        command,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_COMMAND_SECONDS,
        check=False,
    )
    if done.returncode or done.stdout.strip() in ("", _NO_ENTRIES):
        said = (done.stderr or done.stdout).strip().splitlines()
        raise TpuwatchError(
            said[0] if said else f"{command[0]} printed nothing: is there a journal, and may you read it?"
        )
    return done.stdout


def _tail(path: Path) -> str:
    """The last lines of a file."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - _TAIL_BYTES))
        data = file.read(_TAIL_BYTES)
    return (data.partition(b"\n")[2] if size > _TAIL_BYTES else data).decode("utf-8", "replace")
