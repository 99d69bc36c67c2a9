"""The packages of a Python interpreter, read from its files; nothing of it is run or imported."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.doctor.environment import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SITE = re.compile(r"(/[^\0\n]*?/(?:site|dist)-packages)/")
_PYTHON = re.compile(r"python(?:[0-9](?:\.[0-9]{1,2})?)?")
_VERSIONED = re.compile(r"python3\.[0-9]{1,2}")
_MAX_LINKS = 10
_DIST_INFO = re.compile(r"(?P<name>[A-Za-z0-9._]+)-(?P<version>[^-/]+)\.dist-info")


@dataclass(frozen=True)
class Package:
    """An installed package, as its dist-info directory tells."""

    name: str  # normal form: "torch-xla"
    version: str
    folder: Path

    @cached_property
    def requirements(self) -> tuple[str, ...]:
        """Its Requires-Dist lines."""
        return tuple(value for name, value in _headers(self.folder / "METADATA") if name == "Requires-Dist")

    @cached_property
    def tags(self) -> tuple[str, ...]:
        """The platforms that its wheel was built for: "cp312-cp312-manylinux_2_31_x86_64"."""
        return tuple(value for name, value in _headers(self.folder / "WHEEL") if name == "Tag")

    @property
    def from_file(self) -> bool:
        """Whether it was installed from a file or an address and not from an index: its name then tells little."""
        return (self.folder / "direct_url.json").exists()


def packages(sites: Iterable[Path]) -> dict[str, list[Package]]:
    """All packages of some site-packages directories by name; the first directory's come first."""
    found: dict[str, list[Package]] = {}
    for site in dict.fromkeys(sites):
        try:
            names = sorted(entry.name for entry in site.iterdir())
        except OSError:
            continue
        for match in filter(None, map(_DIST_INFO.fullmatch, names)):
            name = normal(match["name"])
            found.setdefault(name, []).append(Package(name, match["version"], site / match[0]))
    return found


def normal(name: str) -> str:
    """A package's name in its normal form."""
    return re.sub(r"[-_.]+", "-", name).lower()


def sites_of_process(proc: Path, root: Path, command: str, environ: Mapping[str, str]) -> list[Path]:
    """The site-packages of a running interpreter: where its libraries were loaded from, then those of its prefix.

    `proc` is its directory in /proc, `root` where its file system is reached. Empty where it is no Python.
    """
    try:
        exe = str((proc / "exe").readlink())
    except OSError:
        exe = ""
    if not _PYTHON.fullmatch(Path(exe or command).name):
        return []
    return [
        *_loaded(proc, root),
        *sites_of_interpreter(_started_as(proc, command, environ, root) or exe, root, environ),
    ]


def sites_of_interpreter(python: str, root: Path, environ: Mapping[str, str]) -> list[Path]:
    """The site-packages of an interpreter, given by its absolute path, as they are below `root`."""
    prefix, system = _prefix(Path(python), root)
    named = _VERSIONED.fullmatch(followed(Path(python), root).name)
    version = named[0] if named else "python3*"
    sites = [_below(root, path) for path in environ.get("PYTHONPATH", "").split(":") if path.startswith("/")]
    homes = [environ["HOME"] + "/.local"] if environ.get("HOME", "").startswith("/") else []
    prefixes: list[str | Path] = [prefix, *([*homes, "/usr/local", "/usr"] if system else [])]
    for folder in prefixes:
        sites += _sites(_below(root, folder), version)
    return list(dict.fromkeys(sites))


def find_on_path(name: str, root: Path, environ: Mapping[str, str]) -> str:
    """The absolute path of a program on PATH; "" where there is none."""
    folders = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    return next((f"{folder}/{name}" for folder in folders if os.path.lexists(_below(root, f"{folder}/{name}"))), "")


def _started_as(proc: Path, command: str, environ: Mapping[str, str], root: Path) -> str:
    """The path that an interpreter was called by: a virtual environment's link, which /proc/PID/exe does not show."""
    if command.startswith("/"):
        return command
    if "/" in command:
        try:
            return os.path.normpath((proc / "cwd").readlink() / command)
        except OSError:
            return ""
    return find_on_path(command, root, environ)


def _prefix(python: Path, root: Path) -> tuple[Path, bool]:
    """sys.prefix, and whether the system's packages count too."""
    configuration = _below(root, python.parent.parent / "pyvenv.cfg")
    if configuration.is_file():
        text = configuration.read_text(encoding="utf-8", errors="replace")
        return python.parent.parent, bool(re.search(r"(?im)^include-system-site-packages\s*=\s*true", text))
    return followed(python, root).parent.parent, True


def followed(path: Path, root: Path) -> Path:
    """Where links lead from a path, as it is seen from below `root`."""
    for _ in range(_MAX_LINKS):
        if not _below(root, path).is_symlink():
            break
        path = Path(os.path.normpath(path.parent / _below(root, path).readlink()))
    return path


def _sites(prefix: Path, version: str) -> list[Path]:
    patterns = (f"lib/{version}/*-packages", f"lib64/{version}/*-packages", "lib/python3/dist-packages")
    return [path for pattern in patterns for path in sorted(prefix.glob(pattern))]


def _loaded(proc: Path, root: Path) -> list[Path]:
    """The site-packages that a process has loaded libraries from; empty where that may not be seen."""
    try:
        with open(proc / "maps", "rb") as file:
            maps = file.read(8 * MAX_BYTES).decode("utf-8", "replace")
    except OSError:
        return []
    return [_below(root, site) for site in dict.fromkeys(match[1] for match in _SITE.finditer(maps))]


def _below(root: Path, path: str | Path) -> Path:
    return root / str(path).lstrip("/")


def _headers(path: Path) -> Iterator[tuple[str, str]]:
    """The headers of a METADATA or WHEEL file; none where it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file.read(MAX_BYTES).splitlines():
                if not line.strip():
                    return
                name, colon, value = line.partition(":")
                if colon:
                    yield name.strip(), value.strip()
    except OSError:
        return
