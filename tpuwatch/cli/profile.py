"""`tpuwatch profile`: where a program's time goes, and what to change."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse

    from tpuwatch.model import Profile

_TIMEOUT_SECONDS = 300.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = "Exit codes: 0 nothing to change, 1 there are findings, 2 wrong use, 3 it could not be read."
    parser.add_argument(
        "path", type=Path, metavar="FILE|DIR", help="a trace (*.xplane.pb), or a directory: the newest profile in it"
    )
    parser.add_argument("--python", metavar="FILE", help="the interpreter that has xprof (default: this environment's)")
    parser.add_argument(
        "--timeout", type=float, default=_TIMEOUT_SECONDS, metavar="S", help="seconds to read it (default: 300)"
    )
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 nothing to change, 1 there are findings, 2 wrong use, 3 it could not be read."""
    from tpuwatch.terminal import print_profile

    profile = read(args.path, args.python, args.timeout)
    options.show(profile, print_profile, as_json=args.json)
    return 1 if profile.findings else 0


def read(path: Path, python: str | None, seconds: float) -> Profile:
    """The profile at a path, read by the interpreter that is given, or by one that has xprof."""
    from tpuwatch.program import (
        ChildLimits,
        available_memory,
        find_profile,
        interpreter,
        profile_command,
        read_profile,
    )

    files = find_profile(path)
    return read_profile(
        files,
        command=profile_command(interpreter(python, os.environ, "xprof")),
        limits=ChildLimits(seconds, available_memory()),
        environ=os.environ,
        on_stage=lambda _: None,
    )
