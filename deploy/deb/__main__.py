"""`python -m deploy.deb`: the Debian package in dist/. It takes dpkg-deb, and the network for the wheels."""

from __future__ import annotations

import argparse
import gzip
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from deploy.deb import wheelhouse
from deploy.man.__main__ import page as man_page
from tpuwatch import __version__

ROOT: Final = Path(__file__).resolve().parents[2]
HERE: Final = Path(__file__).parent
SCRIPTS: Final = HERE / "scripts"
PROGRAM: Final = "/usr/bin/tpuwatch"  # as the package's units have it
_SECONDS: Final = 300.0


def main() -> int:
    """0 if it is built, 1 if not, which is said."""
    parser = argparse.ArgumentParser(prog="python -m deploy.deb", description="Build the Debian package.")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", metavar="DIR", help="default: dist/")
    parser.add_argument("--revision", default="1", help="of the package, for the same version of tpuwatch; default: 1")
    args = parser.parse_args()
    if shutil.which("dpkg-deb") is None:
        print("skipped: dpkg-deb is not installed")
        return 0
    package = args.output / f"tpuwatch_{__version__}-{args.revision}_amd64.deb"
    with tempfile.TemporaryDirectory(prefix="tpuwatch-deb-") as scratch:
        build(package, f"{__version__}-{args.revision}", Path(scratch))
    print(f"{package}: {package.stat().st_size / 1e6:.1f} MB")
    return 0


def build(package: Path, version: str, scratch: Path) -> None:
    """Write the package."""
    os.environ.setdefault("SOURCE_DATE_EPOCH", _commit_seconds())
    tree = scratch / "tree"
    _own_wheel(scratch / "own")
    (own,) = (scratch / "own").glob("*.whl")
    lock, pip_lock = (
        (directory / name).read_text() for directory, name in ((ROOT, "requirements-gcs.lock"), (HERE, "pip.lock"))
    )
    home = tree / "usr/lib/tpuwatch"
    wheelhouse.fill(home / "wheels", own, lock, pip_lock, scratch)
    _copy(SCRIPTS / "environment", home / "environment", mode=0o755)
    (home / "version").write_text(f"{version}\n")
    (tree / "usr/bin").mkdir(parents=True)
    (tree / PROGRAM.lstrip("/")).symlink_to("../lib/tpuwatch/current/bin/tpuwatch")
    _copy(SCRIPTS / "rtupdate", tree / "usr/share/python3/runtime.d/tpuwatch.rtupdate", mode=0o755)
    _copy(HERE / "config.toml", tree / "usr/share/tpuwatch/config.toml")
    _units(tree)
    _documents(tree / "usr/share/doc/tpuwatch")
    _completions(tree / "usr/share")
    _man_page(tree / "usr/share/man/man1/tpuwatch.1.gz")
    _control(tree, version)
    _pack(tree, package)


def _own_wheel(directory: Path) -> None:
    command = (sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(directory))
    subprocess.run(command, cwd=ROOT, stdout=subprocess.DEVNULL, timeout=_SECONDS, check=True)  # noqa: S603


def _units(tree: Path) -> None:
    for unit in (ROOT / "systemd").iterdir():
        text = unit.read_text(encoding="utf-8").replace("/opt/tpuwatch/bin/tpuwatch", PROGRAM)
        if unit.suffix in (".service", ".timer"):
            _write(tree / "usr/lib/systemd/system" / unit.name, text)
        elif unit.name.endswith(".sysusers.conf"):
            _write(tree / "usr/lib/sysusers.d/tpuwatch.conf", text)
        else:
            _write(tree / "usr/share/doc/tpuwatch/examples" / unit.name, text)


def _documents(directory: Path) -> None:
    _copy(HERE / "copyright", directory / "copyright")
    _copy(ROOT / "config.example.toml", directory / "examples/config.example.toml")
    for document in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.svg")):
        _copy(document, directory / document.relative_to(ROOT))
    changes = (ROOT / "CHANGELOG.md").read_bytes()
    (directory / "changelog.gz").write_bytes(gzip.compress(changes, mtime=0))


def _man_page(target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(gzip.compress(man_page().encode(), mtime=0))
    target.chmod(0o644)


def _completions(share: Path) -> None:
    """What the command line writes of itself, where bash-completion and zsh look for it."""
    for shell, place in (("bash", "bash-completion/completions/tpuwatch"), ("zsh", "zsh/vendor-completions/_tpuwatch")):
        command = (sys.executable, "-m", "tpuwatch", "completion", shell)
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True)  # noqa: S603
        _write(share / place, done.stdout)


def _control(tree: Path, version: str) -> None:
    size = sum(path.stat().st_size for path in tree.rglob("*") if path.is_file() and not path.is_symlink()) // 1024
    text = (HERE / "control").read_text(encoding="utf-8").format(version=version, size=size)
    _write(tree / "DEBIAN/control", text)
    for name in ("preinst", "postinst", "prerm", "postrm"):
        _copy(SCRIPTS / name, tree / "DEBIAN" / name, mode=0o755)


def _pack(tree: Path, package: Path) -> None:
    """Without compression: wheels are packed already."""
    for directory in (tree, *(path for path in tree.rglob("*") if path.is_dir())):
        directory.chmod(0o755)
    package.parent.mkdir(parents=True, exist_ok=True)
    command = ("dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(package))
    subprocess.run(command, stdout=subprocess.DEVNULL, timeout=_SECONDS, check=True)  # noqa: S603 (our own words)


def _commit_seconds() -> str:
    """When the source was last committed, so that the same source gives the same package; 0 outside of a repository."""
    command = ("git", "-C", str(ROOT), "log", "-1", "--format=%ct")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    return done.stdout.strip() or "0"


def _copy(source: Path, target: Path, *, mode: int = 0o644) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(mode)


def _write(target: Path, text: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(text, encoding="utf-8")
    target.chmod(0o644)


if __name__ == "__main__":
    sys.exit(main())
