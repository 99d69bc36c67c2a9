"""The wheels for each Python, and for each a list of what is to be installed from them, with hashes.

What is downloaded is what requirements-gcs.lock names, by its hashes; what of it is installed is what the wheel needs.
"""

from __future__ import annotations

import email.parser
import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from typing import TYPE_CHECKING, Final

from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name, parse_wheel_filename

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

PYTHONS: Final = ("3.10", "3.11", "3.12", "3.13")
GLIBC: Final = 35  # 2.35, of Ubuntu 22.04: the oldest system of a TPU VM that has Python 3.10
_PLATFORMS: Final = ("manylinux1", "manylinux2010", "manylinux2014", *(f"manylinux_2_{n}" for n in range(5, GLIBC + 1)))
INSTALLED: Final = Requirement("tpuwatch[gcs]")
_SECONDS: Final = 300.0


def environment(python: str) -> dict[str, str]:
    """What markers of requirements go by on a machine with this Python."""
    machine = {"implementation_name": "cpython", "platform_python_implementation": "CPython", "sys_platform": "linux"}
    versions = {"python_version": python, "python_full_version": f"{python}.0"}
    return {**{key: str(value) for key, value in default_environment().items()}, **machine, **versions}


def locked(lock: str, python: str) -> list[str]:
    """The lines of the lock that hold for this Python, each "NAME==VERSION --hash=…", without their markers."""
    lines = []
    for line in re.sub(r"\\\n", "", lock).splitlines():
        requirement, *hashes = line.split(" --hash=")
        pin, _, marker = requirement.partition(";")
        if not marker or Marker(marker.strip()).evaluate(environment(python)):
            lines.append(" --hash=".join([pin.strip(), *(one.strip() for one in hashes)]))
    return lines


def download(lines: Sequence[str], python: str, directory: Path) -> None:
    """The wheels of these lines, from where pip is configured to find them."""
    directory.mkdir(parents=True, exist_ok=True)
    requirements = directory.with_name(f"{directory.name}.lock")
    requirements.write_text("\n".join(lines) + "\n", encoding="utf-8")
    platforms = [f"--platform={name}_x86_64" for name in _PLATFORMS]
    target = (f"--python-version={python}", "--implementation=cp", *platforms)
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "download", "--no-deps")
    command = (*pip, "--only-binary=:all:", *target, "--require-hashes", f"--dest={directory}", "-r", str(requirements))
    subprocess.run(command, stdin=subprocess.DEVNULL, timeout=_SECONDS, check=True)  # noqa: S603 (our own words)


def needed(wheels: Mapping[str, Path], root: Requirement, python: str) -> list[str]:
    """The names of all that `root` needs, itself included. Raises KeyError for a missing wheel."""
    extras = [(root.name, extra) for extra in ("", *root.extras)]
    found = {root.name: {"", *root.extras}}
    while extras:
        name, extra = extras.pop()
        for requirement in _requirements(wheels[name]):
            holds = requirement.marker is None or requirement.marker.evaluate({**environment(python), "extra": extra})
            for wanted in ("", *requirement.extras) if holds else ():
                dependency = canonicalize_name(requirement.name)
                if wanted not in found.setdefault(dependency, set()):
                    found[dependency].add(wanted)
                    extras.append((dependency, wanted))
    return sorted(found)


def _requirements(wheel: Path) -> list[Requirement]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        metadata = email.parser.BytesParser().parsebytes(archive.read(name), headersonly=True)
    return [Requirement(text) for text in metadata.get_all("Requires-Dist", [])]


def by_name(paths: Iterable[Path]) -> dict[str, Path]:
    """Wheels by the names of their packages."""
    return {str(parse_wheel_filename(path.name)[0]): path for path in paths}


def fill(wheelhouse: Path, own: Path, lock: str, pip_lock: str, scratch: Path) -> None:
    """The wheels of all Pythons, and requirements-PYTHON.lock for each Python; pip itself beside them."""
    wheelhouse.mkdir(parents=True)
    download(pip_lock.split("\n")[:1], PYTHONS[0], scratch / "pip")
    for wheel in (scratch / "pip").glob("*.whl"):
        shutil.copy(wheel, wheelhouse.with_name("pip.whl"))
    for python in PYTHONS:
        directory = scratch / f"wheels-{python}"
        download(locked(lock, python), python, directory)
        wheels = by_name([own, *directory.glob("*.whl")])
        lines = []
        for name in needed(wheels, INSTALLED, python):
            version = parse_wheel_filename(wheels[name].name)[1]
            lines.append(f"{name}=={version} --hash=sha256:{hashlib.sha256(wheels[name].read_bytes()).hexdigest()}")
            shutil.copy(wheels[name], wheelhouse)
        (wheelhouse / f"requirements-{python}.lock").write_text("\n".join(lines) + "\n", encoding="utf-8")
