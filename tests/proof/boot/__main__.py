"""`python -m tests.proof.boot`: boot, install, check, print a table."""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.paths import ROOT
from tests.proof.boot import debian, package
from tests.proof.boot.checks import CHECKS, FIRST
from tests.proof.boot.failure import Failed
from tests.proof.boot.machine import Machine
from tests.proof.boot.service import Service

if TYPE_CHECKING:
    from types import FrameType

REPOSITORY = ROOT


def main() -> int:
    """0 when all checks hold, or none can be made here, which is said; else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.proof.boot", description="Test the systemd unit on a booted Debian."
    )
    parser.add_argument("names", nargs="*", metavar="CHECK", help=f"of {', '.join(CHECKS)}; all by default")
    parser.add_argument("--debian", type=Path, metavar="DIR", help="copy this tree, which debootstrap has made")
    parser.add_argument("--wheels", type=Path, metavar="DIR", help="install from these wheels, which pip has fetched")
    args = parser.parse_args()
    if unknown := set(args.names) - set(CHECKS):
        parser.error(f"no check is called {', '.join(sorted(unknown))}")
    signal.signal(signal.SIGTERM, _leave)
    try:
        debian.require()
        with tempfile.TemporaryDirectory(prefix="tpuwatch-booted-") as scratch:
            return _prove(Path(scratch), args)
    except debian.Unavailable as reason:
        print(f"skipped: {reason}")
        return 0


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 # as signal wants it
    """End as by Ctrl-C: nothing is left behind."""
    raise KeyboardInterrupt


def _prove(scratch: Path, args: argparse.Namespace) -> int:
    begun = time.monotonic()
    packages = scratch / "packages"
    build = package.start_build(packages)
    try:
        tree = debian.make(scratch / "debian", like=args.debian)
        wheels = args.wheels.absolute() if args.wheels else debian.fetch_wheels(REPOSITORY, scratch / "wheels")
        package.finish_build(build, packages)
    finally:
        build.kill()
    mounts = {"/mnt/tpuwatch": REPOSITORY, "/mnt/wheels": wheels, package.PACKAGES: packages}
    with Machine(tree, mounts) as machine:
        print(f"{debian.describe(tree)}, booted after {time.monotonic() - begun:.0f} s\n", flush=True)
        service = Service(machine)
        failures = 0
        for name, check in CHECKS.items():
            if args.names and name not in {*args.names, FIRST}:
                continue
            start = time.monotonic()
            try:
                seen, verdict = check(service), "ok"
            except Failed as failure:
                seen, verdict = str(failure), "FAILED"
                failures += 1
            print(f"{name:13} {verdict:6} {time.monotonic() - start:5.1f} s  {seen}", flush=True)
            if verdict != "ok":
                print(service.last_words(), flush=True)
                if name == FIRST:
                    break
    print(f"\n{'all hold' if not failures else f'{failures} failed'}, {time.monotonic() - begun:.0f} s in all")
    return 1 if failures else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
