"""`tpuwatch env`: the environment that the next launch of a workload should have."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tpuwatch.cli import options
from tpuwatch.core import printable

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator

    from tpuwatch.config import StartConfig
    from tpuwatch.tune import Prepared

_FORMATS = ("shell", "systemd", "json", "docker")
_PLACE = Path()  # of --write without a file: the workload's own place
_EPILOG = (
    'To use it: eval "$(tpuwatch env)" in a shell; EnvironmentFile= in a systemd unit; docker run --env-file. What is '
    "set in this environment already stays, and is reported on standard error. The formats systemd and docker and "
    "--write are for another environment than this one, and have all of it."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.epilog = _EPILOG
    options.add_workload(parser, "what is launched; else $TPUWATCH_WORKLOAD, else default")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--format", choices=_FORMATS, help="default: shell; with --write systemd")
    form.add_argument("--json", action="store_const", const="json", dest="format", help="the same as --format json")
    parser.add_argument(
        "--write",
        nargs="?",
        type=Path,
        const=_PLACE,
        metavar="FILE",
        help="write it to a file, in one step; without FILE to plans/NAME.env in the directory of [tune]",
    )
    options.add_config(parser)


def run(args: argparse.Namespace) -> int:
    """0 done. A TuneError says what could not be written."""
    from tpuwatch.tune import environment, prepare

    form = args.format or ("shell" if args.write is None else "systemd")
    elsewhere = args.write is not None or form in ("systemd", "docker")
    start = _start_config(args)
    prepared = prepare(args.workload, os.environ, time.time(), start=start, elsewhere=elsewhere)
    if args.write == _PLACE:  # the daemon's own file, which it compares with the plan
        from tpuwatch.workload import SOCKET_VARIABLE

        prepared.given.set.pop(SOCKET_VARIABLE, None)
    text = environment.render(prepared.plan, prepared.given, form)
    for note in _notes(prepared):
        options.print_note(note)
    if args.write is None:
        sys.stdout.write(text)
        sys.stdout.flush()
    else:
        path = _target(args.write, prepared)
        environment.write(path, text)
        print(f"Wrote {path}.")
    return 0


def _start_config(args: argparse.Namespace) -> StartConfig:
    """The configuration; where this user may not read it, the defaults, beside which the plan that stands counts."""
    from tpuwatch.config import StartConfig, read_config
    from tpuwatch.core import ConfigDeniedError

    try:
        return read_config(args.config, os.environ)
    except ConfigDeniedError as error:
        options.print_note(f"{error}. This is the plan that stands, or the defaults.")
        return StartConfig(trouble=str(error))


def _target(given: Path, prepared: Prepared) -> Path:
    from tpuwatch.tune import environment_path, make_plan_directory

    if given != _PLACE:
        return given
    make_plan_directory(prepared.directory)
    return environment_path(prepared.directory, prepared.plan.workload)


def _notes(prepared: Prepared) -> Iterator[str]:
    """Messages to the operator beside the environment."""
    yield from prepared.warnings
    for kept in prepared.given.kept:
        value, ours = printable(kept.value, 200), printable(kept.ours, 200)
        yield f"{kept.name}={value} is set already and stays; tpuwatch would have {ours}."
