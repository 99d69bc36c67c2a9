"""A tree that is booted in systemd-nspawn, with a network of its own, and commands in it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

from tests.proof.boot.debian import Unavailable
from tests.proof.boot.failure import Failed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

BOOT_SECONDS = 60.0
OFF_SECONDS = 20.0
COMMAND_SECONDS = 60.0
LOOK_SECONDS = 0.05
POWER_OFF = signal.SIGRTMIN + 4  # to the container's systemd


class Machine:
    """Booted while in it; leaving switches it off."""

    def __init__(self, tree: Path, mounts: Mapping[str, Path]) -> None:
        """`mounts` are directories of this machine by where they are seen in that one, to be read only."""
        self.tree = tree
        self._mounts = mounts
        self._container: subprocess.Popen[bytes] | None = None
        self._leader = 0

    def __enter__(self) -> Machine:  # noqa: PYI034 - Self is in typing from 3.11 on
        try:
            self.boot()
        except BaseException:
            self.switch_off()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.switch_off()

    def boot(self) -> None:
        """Boot it, until its systemd has started all that it should. Raises Unavailable when that does not come."""
        binds = [f"--bind-ro={source}:{place}" for place, source in self._mounts.items()]
        console = self.tree.with_name("console.log")
        with console.open("wb") as output:
            self._container = subprocess.Popen(  # our own words
                (
                    *("systemd-nspawn", "--quiet", f"--directory={self.tree}", f"--machine=tpuwatch-{os.getpid()}"),
                    *("--register=no", *_unit(), "--console=pipe", "--private-network", *binds, "--boot"),
                ),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, "SYSTEMD_NSPAWN_UNIFIED_HIERARCHY": "1"},
                start_new_session=True,  # Ctrl-C is for us alone, who switch it off in order
            )
        deadline = time.monotonic() + BOOT_SECONDS
        while self._state() not in ("running", "degraded"):
            ended = self._container.poll() is not None
            if ended or time.monotonic() > deadline:
                last = (console.read_text(errors="replace").strip().splitlines() or ["it says nothing"])[-1]
                raise Unavailable(f"systemd-nspawn did {'not start' if ended else 'not come up'}: {last}")
            time.sleep(LOOK_SECONDS)

    def switch_off(self) -> None:
        """Shut it down, or end it when that takes too long."""
        container, self._container = self._container, None
        if container is None:
            return
        if self._leader and container.poll() is None:
            self._signal(POWER_OFF)
            with contextlib.suppress(subprocess.TimeoutExpired):
                container.wait(OFF_SECONDS)
        if container.poll() is None:
            self._signal(signal.SIGKILL)  # of the namespace's first process: all others end with it
            container.kill()
        container.wait()
        self._leader = 0
        _sweep_cgroups()

    def reboot(self) -> None:
        """Shut it down, and boot the same tree again."""
        self.switch_off()
        self.boot()

    def run(self, *command: str, check: bool = True, seconds: float = COMMAND_SECONDS) -> str:
        """What a command there prints. Raises Failed when it does not end well, or not in time."""
        done = self._enter(*command, seconds=seconds)
        if check and done.returncode != 0:
            words = (done.stderr.strip() or done.stdout.strip())[-600:]
            raise Failed(f"exit status {done.returncode} of {' '.join(command)[:200]}: {words}")
        return done.stdout

    def status(self, *command: str, seconds: float = COMMAND_SECONDS) -> int:
        """A command's exit status."""
        return self._enter(*command, seconds=seconds).returncode

    def shell(self, script: str, *, seconds: float = COMMAND_SECONDS) -> str:
        """What a script prints; it ends at the first command that fails."""
        return self.run("sh", "-ec", script, seconds=seconds)

    def write(self, path: str, text: str) -> None:
        """A file in it, with its directory. Not below the tree from here, since it has mounts of its own there."""
        self.run("python3", "-c", _WRITE, path, text)

    def _state(self) -> str:
        if not self._leader:
            self._leader = self._first_process()
        return self._enter("systemctl", "is-system-running").stdout.strip() if self._leader else ""

    def _first_process(self) -> int:
        """The container's process 1 by its number here, once it is there: a child of nspawn, in another namespace."""
        if self._container is None:
            return 0
        pid = self._container.pid
        with contextlib.suppress(OSError):
            for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
                status = Path(f"/proc/{child}/status").read_text()
                numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
                if len(numbers) > 1 and numbers[-1] == "1" and status.startswith("Name:\tsystemd\n"):
                    return int(child)
        return 0

    def _enter(self, *command: str, seconds: float = COMMAND_SECONDS) -> subprocess.CompletedProcess[str]:
        namespaces = ("nsenter", "-t", str(self._leader), "-m", "-u", "-i", "-n", "-p", "-C")
        try:
            return subprocess.run(  # our own words
                (*namespaces, "env", "-i", *_ENVIRONMENT, *command),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"no end after {seconds:.0f} s of {' '.join(command)[:200]}") from None

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._leader, number)


def _unit() -> tuple[str, ...]:
    """Without a systemd here there is nobody to make a unit for the container, and it stays in ours."""
    return () if Path("/run/systemd/system").is_dir() else ("--keep-unit",)


def _sweep_cgroups() -> None:
    """Remove the control groups that it then leaves in ours; one in which something runs stays."""
    if not _unit():
        return
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, ours = line.split(":", 2)
        places = ("", "unified") if number == "0" else (controllers.removeprefix("name="),)
        for place, left in product(places, ("payload", "supervisor")):
            top = Path("/sys/fs/cgroup", place, ours.lstrip("/"), left)
            below = [Path(path) for path, _, _ in os.walk(top, topdown=False)]
            with contextlib.suppress(OSError):
                for group in below:
                    group.rmdir()


_ENVIRONMENT = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/root",
    "LANG=C.UTF-8",
    "SYSTEMD_PAGER=cat",
    "PIP_NO_INDEX=1",
    "PIP_FIND_LINKS=/mnt/wheels",
)
_WRITE = """
import pathlib, sys
path = pathlib.Path(sys.argv[1])
path.parent.mkdir(parents=True, exist_ok=True)
path.write_text(sys.argv[2])
"""
