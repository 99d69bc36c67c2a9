"""Which wheels the Debian package holds, and which of them it installs."""

from __future__ import annotations

import re
import zipfile
from typing import TYPE_CHECKING

import pytest
from packaging.requirements import Requirement

from deploy.deb.wheelhouse import GLIBC, PYTHONS, by_name, locked, needed
from tests.paths import ROOT
from tpuwatch import __version__

if TYPE_CHECKING:
    from pathlib import Path

LOCK = """\
both==1.0 \\
    --hash=sha256:aa \\
    --hash=sha256:bb
old==2.0 ; python_full_version < '3.11' \\
    --hash=sha256:cc
new==3.0 ; python_full_version >= '3.11' and sys_platform == 'linux' \\
    --hash=sha256:dd
windows==4.0 ; sys_platform == 'win32' \\
    --hash=sha256:ee
"""


def wheel(directory: Path, name: str, *requires: str) -> Path:
    path = directory / f"{name}-1.0-py3-none-any.whl"
    lines = "".join(f"Requires-Dist: {text}\n" for text in requires)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\n{lines}\n")
    return path


def test_a_lock_is_read_as_the_other_python_would_read_it() -> None:
    assert locked(LOCK, "3.10") == ["both==1.0 --hash=sha256:aa --hash=sha256:bb", "old==2.0 --hash=sha256:cc"]
    assert locked(LOCK, "3.13") == ["both==1.0 --hash=sha256:aa --hash=sha256:bb", "new==3.0 --hash=sha256:dd"]


@pytest.mark.parametrize("python", PYTHONS)
def test_each_package_of_the_real_lock_has_one_version(python: str) -> None:
    names = [line.partition("==")[0] for line in locked((ROOT / "requirements-gcs.lock").read_text(), python)]
    assert len(names) > 30
    assert len(names) == len(set(names))


def test_what_is_needed_is_followed_through_extras_and_markers(tmp_path: Path) -> None:
    wheels = by_name(
        [
            wheel(tmp_path, "own", "a[fast]>=1", "older; python_version < '3.11'", "plot; extra == 'plot'"),
            wheel(tmp_path, "a", "b; extra == 'fast'", "c; extra == 'slow'"),
            wheel(tmp_path, "b", "own"),
            wheel(tmp_path, "older"),
            wheel(tmp_path, "builds_wheels"),
        ]
    )
    assert needed(wheels, Requirement("own"), "3.12") == ["a", "b", "own"]
    assert needed(wheels, Requirement("own"), "3.10") == ["a", "b", "older", "own"]
    assert needed({**wheels, "plot": wheels["a"]}, Requirement("own[plot]"), "3.12") == ["a", "b", "own", "plot"]


def test_a_wheel_that_the_lock_lacks_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="missing"):
        needed(by_name([wheel(tmp_path, "own", "missing")]), Requirement("own"), "3.12")


def test_the_package_asks_for_the_pythons_and_the_c_library_that_its_wheels_are_for() -> None:
    control = (ROOT / "deploy/deb/control").read_text()
    last = int(PYTHONS[-1].partition(".")[2])
    assert f"python3 (>= {PYTHONS[0]}), python3 (<< 3.{last + 1}), libc6 (>= 2.{GLIBC})" in control
    filled = control.format(version=f"{__version__}-1", size=1)
    assert re.search(rf"^Version: {__version__}-1$", filled, re.MULTILINE)
    assert {f"Programming Language :: Python :: {python}" for python in PYTHONS} <= set(
        re.findall(r'"(Programming [^"]*)"', (ROOT / "pyproject.toml").read_text())
    )
