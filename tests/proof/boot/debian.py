"""A Debian in a directory, and the wheels that tpuwatch is installed from in it."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

SUITE = "bookworm"
PYTHON = "3.11"  # which that suite has
PACKAGES = "systemd,dbus,python3,python3-venv"
DEBOOTSTRAP_SECONDS = 400.0
WHEELS_SECONDS = 200.0
# debootstrap mounts /proc below the tree: in namespaces of its own, where it ends with all that it has started.
_CONFINED = ("unshare", "--mount", "--pid", "--fork", "--kill-child", "--propagation", "private")


class Unavailable(Exception):  # noqa: N818 # nothing is wrong
    """This machine cannot boot a container, and why."""


def require() -> None:
    """Raises Unavailable where there is no hope; what is here may fail to do it all the same."""
    if os.geteuid() != 0:
        raise Unavailable("booting a container takes root")
    if missing := [name for name in ("debootstrap", "systemd-nspawn", "nsenter", "unshare") if not shutil.which(name)]:
        raise Unavailable(f"not installed: {', '.join(missing)} (Debian: debootstrap and systemd-container)")
    _try("this container may not make namespaces", *_CONFINED, "mount", "-t", "tmpfs", "none", "/mnt", seconds=30.0)


def make(tree: Path, *, like: Path | None = None) -> Path:
    """A new Debian in this directory, or a copy of one. Raises Unavailable when it cannot be had."""
    if like is not None:
        _try("the tree could not be copied", "cp", "--archive", str(like), str(tree), seconds=DEBOOTSTRAP_SECONDS)
        return tree
    words = ("debootstrap", "--variant=minbase", f"--include={PACKAGES}", SUITE, str(tree), *_mirror())
    _try("debootstrap failed", *_CONFINED, *words, seconds=DEBOOTSTRAP_SECONDS)
    return tree


def _mirror() -> tuple[str, ...]:
    """Where apt here has this Debian from; nothing where it has another one, and then debootstrap knows a mirror."""
    chosen = ("Created-By: Packages", "Origin: Debian", f"Codename: {SUITE}")
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(  # our own words
            ("apt-get", "indextargets", "--format", "$(REPO_URI)", *chosen),  # noqa: S607 # wherever the system has it
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=30.0,
            check=True,
        )
        return tuple(done.stdout.split()[:1])
    return ()


def fetch_wheels(repository: Path, directory: Path) -> Path:
    """The locked wheels for that Debian's Python, from where pip is configured to find them.

    Raises Unavailable when they cannot be had.
    """
    chosen = (f"--python-version={PYTHON}", "--only-binary=:all:", f"--dest={directory}")
    locked = ("--require-hashes", "-r", str(repository / "requirements.lock"))
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download")
    _try("pip download failed", *pip, *chosen, *locked, seconds=WHEELS_SECONDS)
    return directory


def describe(tree: Path) -> str:
    """Which Debian it is."""
    return f"Debian {(tree / 'etc/debian_version').read_text().strip()}"


def _try(what: str, *command: str, seconds: float) -> None:
    try:
        subprocess.run(  # our own words
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=True,
        )
    except subprocess.TimeoutExpired:
        raise Unavailable(f"{what}: no end after {seconds:.0f} s") from None
    except subprocess.CalledProcessError as error:
        last = (error.stdout.strip().splitlines() or [f"exit status {error.returncode}"])[-1]
        raise Unavailable(f"{what}: {last}") from None
