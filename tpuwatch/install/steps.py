"""The steps of `tpuwatch install` and `uninstall`, each of which can be printed before it is done, or instead."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.config import SYSTEM_PATH, render_example
from tpuwatch.core import InstallError
from tpuwatch.install.units import SERVICE, TIMER, UNITS, USERS, is_unchanged, packaged, unit_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tpuwatch.install.host import InstallHost

_UNIT_DIRECTORY: Final = "/etc/systemd/system"


@dataclass(frozen=True)
class InstallStep:
    """One thing that is done; `do` raises InstallError."""

    text: str
    do: Callable[[], None] = lambda: None


def install_steps(host: InstallHost) -> Iterator[InstallStep]:
    """Units, user and configuration, and the service started with them. A step may look at what those before it did."""
    yield _command(host, "systemd-sysusers", str(packaged(USERS)))
    for name in UNITS:
        yield from _unit_steps(host, name)
    config = host.path(str(SYSTEM_PATH))
    if config.exists():
        yield InstallStep(f"Keep {SYSTEM_PATH}, which is there")
    else:
        yield InstallStep(f"Write {SYSTEM_PATH}, every key with its default", lambda: _write(config, render_example()))
    yield _command(host, "systemctl", "daemon-reload")
    yield _command(host, "systemctl", "enable", SERVICE)
    yield _command(host, "systemctl", "restart", SERVICE, hint=f"; `journalctl -u {SERVICE}` has the reason")


def _unit_steps(host: InstallHost, name: str) -> Iterator[InstallStep]:
    place = f"{_UNIT_DIRECTORY}/{name}"
    path, text = host.path(place), unit_text(name, host.program)
    kept = path.with_name(f"{name}.old")
    present = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
    if present == text:
        yield InstallStep(f"Keep {place}, which is as it should be")
        return
    if present and not is_unchanged(present):
        yield InstallStep(f"Keep {place} as {kept.name}: it was changed", lambda: _rename(path, kept))
    yield InstallStep(f"Write {place}", lambda: _write(path, text))


def uninstall_steps(host: InstallHost) -> Iterator[InstallStep]:
    """The units stopped and removed. State, configuration and user stay: `leftovers` names them."""
    present = [name for name in UNITS if host.path(f"{_UNIT_DIRECTORY}/{name}").exists()]
    for name in (SERVICE, TIMER):
        if name in present:
            yield _command(host, "systemctl", "disable", "--now", name)
    for name in present:
        place = f"{_UNIT_DIRECTORY}/{name}"
        yield InstallStep(f"Remove {place}", host.path(place).unlink)
    if present:
        yield _command(host, "systemctl", "daemon-reload")


def leftovers(host: InstallHost) -> list[str]:
    """What `uninstall_steps` leave on the machine, each as a command that removes it."""
    drop_ins = [f"{_UNIT_DIRECTORY}/{name}.d" for name in UNITS]
    places = [*drop_ins, "/etc/tpuwatch", "/var/lib/tpuwatch", "/var/lib/systemd/timers/stamp-tpuwatch-prune.timer"]
    there = [place for place in places if host.path(place).exists()]
    users = host.path("/etc/passwd")
    has_user = users.is_file() and "\ntpuwatch:" in "\n" + users.read_text(encoding="utf-8", errors="replace")
    return [*([f"rm -r {' '.join(there)}"] if there else []), *(["userdel tpuwatch"] if has_user else [])]


def _command(host: InstallHost, *command: str, hint: str = "") -> InstallStep:
    words = " ".join(command)

    def do() -> None:
        if said := host.run(*command):
            raise InstallError(f"`{words}` failed{hint}: {said}")

    return InstallStep(f"Run {words}", do)


def _rename(path: Path, other: Path) -> None:
    try:
        path.replace(other)
    except OSError as error:
        raise InstallError(f"cannot rename {path}: {error.strerror}") from error


def _write(path: Path, text: str) -> None:
    """A file that all may read, and its directory."""
    try:
        path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        fresh = path.with_name(f".{path.name}.new")
        fresh.write_text(text, encoding="utf-8")
        fresh.chmod(0o644)
        fresh.replace(path)
    except OSError as error:
        raise InstallError(f"cannot write {path}: {error.strerror}") from error
