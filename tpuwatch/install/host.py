"""The machine that tpuwatch is installed on, and whether it can be."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import sysconfig
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.core import InstallError, has_members, places, who_may_change
from tpuwatch.install.units import SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

_PLAIN: Final = re.compile(r"[A-Za-z0-9_./+@:-]+")  # what a unit takes as it is
_RUN_SECONDS: Final = 180.0  # the unit's TimeoutStartSec, with some room
_VENV: Final = "`sudo python3 -m venv /opt/tpuwatch`, install tpuwatch with /opt/tpuwatch/bin/pip, and run this again"


def _program() -> Path:
    """The `tpuwatch` command of the Python that runs this."""
    return Path(sysconfig.get_path("scripts")) / "tpuwatch"


def _code() -> tuple[Path, ...]:
    """The interpreter that runs this, as it is called and as it is, and the directories of all that it imports."""
    import tpuwatch

    interpreter = Path(sys.executable)
    libraries = (Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return tuple(dict.fromkeys((interpreter, interpreter.resolve(), *libraries, Path(tpuwatch.__file__).parent)))


def _run(*command: str) -> str:
    """Run a command; what it said if it failed, else "". Raises InstallError if there is no such command."""
    try:
        done = subprocess.run(  # noqa: S603 (our own words)
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_RUN_SECONDS, check=False
        )
    except FileNotFoundError as error:
        raise InstallError(f"there is no command {command[0]}, which systemd has") from error
    except subprocess.TimeoutExpired:
        return f"no end after {_RUN_SECONDS:.0f} s"
    return "" if done.returncode == 0 else (done.stderr or done.stdout).strip() or f"exit status {done.returncode}"


@dataclass(frozen=True)
class InstallHost:
    """The files below `root`, the command that the units start, and how commands of the system are run."""

    root: Path = Path("/")
    program: Path = field(default_factory=_program)
    run: Callable[..., str] = _run
    is_root: bool = field(default_factory=lambda: os.geteuid() == 0)
    trusted_uids: frozenset[int] = frozenset({0})
    code: tuple[Path, ...] = field(default_factory=_code)
    has_members: Callable[[int, Collection[int]], bool] = has_members

    def path(self, place: str) -> Path:
        """Where a file of the machine is."""
        return self.root / place.lstrip("/")

    def require_program(self) -> None:
        """Raises InstallError unless the command may be run by a service, for as long as the service is there."""
        if not _PLAIN.fullmatch(str(self.program)):
            raise InstallError(f"{self.program} has characters that have a meaning in units; {_VENV}")
        if not self.program.is_file():
            raise InstallError(f"there is no {self.program}; install the package with this Python's pip")
        for path in self.program.parents:
            # uv marks its environments as a cache too; what matters is a cache that an environment lies in.
            if len(path.parts) < len(self.program.parts) - 2 and (path / "CACHEDIR.TAG").is_file():
                raise InstallError(f"{self.program} is in a cache, {path}, which may be emptied; {_VENV}")
        for path, adding in self._places():
            if who := who_may_change(path, self.trusted_uids, adding=adding, has_members=self.has_members):
                raise InstallError(
                    f"{path} can be changed by {who}, and so could what the service runs with the right to read every "
                    f"file; {_VENV}"
                )

    def _places(self) -> Iterator[tuple[Path, bool]]:
        """Each file and directory by which what the service runs could be changed; whether by a file put there too."""
        imported = (self.program.parent, *self.code)  # a script imports what lies beside it first
        seen = set[Path]()
        pending = [self.program, *imported]
        while pending:
            place = pending.pop()
            for path in places(place):
                if path not in seen:
                    yield path, path in imported
            seen.update(places(place))
            for directory, directories, files in os.walk(place):
                for path in (Path(directory, name) for name in (*directories, *files)):
                    yield path, True
                    if path.is_symlink() and (real := path.resolve()) not in seen:
                        seen.add(real)
                        pending.append(real)

    def require_systemd(self) -> None:
        """Raises InstallError where units cannot be installed."""
        if not self.is_root:
            raise InstallError(f"only root can install units; run `sudo {self.program} install`")
        if not self.path("/run/systemd/system").is_dir():
            raise InstallError(
                f"systemd does not run on this machine; start `{self.program} run` with what starts services here"
            )

    def require_no_package(self) -> None:
        """Raises InstallError where the units are those of the Debian package."""
        if self.path(f"/usr/lib/systemd/system/{SERVICE}").exists():
            raise InstallError(
                "tpuwatch is installed as a Debian package, which has its own units; `apt-get remove tpuwatch` first, "
                "or use that one"
            )
