"""The packages of another Python interpreter, read from its files; nothing of it is run or imported."""

from __future__ import annotations

import contextlib
import email
import os
import re
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.doctor.environment import MAX_BYTES, read_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from email.message import Message

_SITE = re.compile(r"(/[^\0\n]*?/(?:site|dist)-packages)/")
_PYTHON = re.compile(r"python(?:[0-9](?:\.[0-9]{1,2})?)?")
_VERSIONED = re.compile(r"python3\.[0-9]{1,2}")
_MAX_LINKS = 10


@dataclass(frozen=True, slots=True)
class Package:
    """An installed package."""

    name: str  # normal form: "torch-xla"
    folder: Path  # its .dist-info
    metadata: Message

    @property
    def version(self) -> str:
        """Its version, as its metadata states it."""
        return self.metadata.get("Version", "")

    @property
    def requirements(self) -> tuple[str, ...]:
        """Its Requires-Dist lines."""
        return tuple(self.metadata.get_all("Requires-Dist", ()))

    @property
    def tags(self) -> tuple[str, ...]:
        """The platforms that its wheel was built for: "cp312-cp312-manylinux_2_31_x86_64"."""
        lines = _text_or_empty(self.folder / "WHEEL").splitlines()
        return tuple(line.removeprefix("Tag:").strip() for line in lines if line.startswith("Tag:"))

    @property
    def from_file(self) -> bool:
        """Whether it was installed from a file or a URL and not from an index, so that its name means little."""
        return (self.folder / "direct_url.json").is_file()


def find_package(name: str, sites: Sequence[Path]) -> Package | None:
    """The package that an import would use: of the first of these site-packages directories that has it."""
    for site in sites:
        for folder in site.glob("*.dist-info"):
            own = normal_name(folder.name.partition("-")[0])
            if own == normal_name(name) and (metadata := _text_or_empty(folder / "METADATA")):
                return Package(own, folder, email.message_from_string(metadata))
    return None


def any_package(sites: Sequence[Path]) -> bool:
    """Whether any package is installed in these directories."""
    return next(iter(distributions(path=[str(site) for site in sites])), None) is not None


def normal_name(name: str) -> str:
    """A package's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def sites_of_process(proc: Path, root: Path, command: str, environ: Mapping[str, str]) -> list[Path]:
    """The site-packages of a running interpreter: those that it loaded libraries from, then those of its prefix.

    `proc` is its directory in /proc, `root` the root of its file system. Empty if it is no Python.
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
    named = _VERSIONED.fullmatch(resolve_links(Path(python), root).name)
    version = named[0] if named else "python3*"
    sites = [_below(root, path) for path in environ.get("PYTHONPATH", "").split(":") if path.startswith("/")]
    homes = [environ["HOME"] + "/.local"] if environ.get("HOME", "").startswith("/") else []
    prefixes: list[str | Path] = [prefix, *([*homes, "/usr/local", "/usr"] if system else [])]
    for folder in prefixes:
        sites += _sites(_below(root, folder), version)
    return list(dict.fromkeys(sites))


def find_on_path(name: str, root: Path, environ: Mapping[str, str]) -> str:
    """The absolute path of a program on PATH; "" if there is none."""
    folders = [folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/")]
    return next((f"{folder}/{name}" for folder in folders if os.path.lexists(_below(root, f"{folder}/{name}"))), "")


def _started_as(proc: Path, command: str, environ: Mapping[str, str], root: Path) -> str:
    """The path that an interpreter was started with, such as the link in a virtual environment."""
    if command.startswith("/"):
        return command
    if "/" in command:
        try:
            return os.path.normpath((proc / "cwd").readlink() / command)
        except OSError:
            return ""
    return find_on_path(command, root, environ)


def _prefix(python: Path, root: Path) -> tuple[Path, bool]:
    """sys.prefix, and whether the system's packages are used too."""
    configuration = _below(root, python.parent.parent / "pyvenv.cfg")
    if configuration.is_file():
        text = read_text(configuration)
        return python.parent.parent, bool(re.search(r"(?im)^include-system-site-packages\s*=\s*true", text))
    return resolve_links(python, root).parent.parent, True


def resolve_links(path: Path, root: Path) -> Path:
    """The target of a path's links, with `root` as the root directory."""
    for _ in range(_MAX_LINKS):
        if not _below(root, path).is_symlink():
            break
        path = Path(os.path.normpath(path.parent / _below(root, path).readlink()))
    return path


def _sites(prefix: Path, version: str) -> list[Path]:
    patterns = (f"lib/{version}/*-packages", f"lib64/{version}/*-packages", "lib/python3/dist-packages")
    return [path for pattern in patterns for path in sorted(prefix.glob(pattern))]


def _loaded(proc: Path, root: Path) -> list[Path]:
    """The site-packages that a process has loaded libraries from; empty if that cannot be read."""
    maps = _text_or_empty(proc / "maps", 8 * MAX_BYTES)
    return [_below(root, site) for site in dict.fromkeys(match[1] for match in _SITE.finditer(maps))]


def _text_or_empty(path: Path, max_bytes: int = MAX_BYTES) -> str:
    with contextlib.suppress(OSError):
        return read_text(path, max_bytes)
    return ""


def _below(root: Path, path: str | Path) -> Path:
    return root / str(path).lstrip("/")
