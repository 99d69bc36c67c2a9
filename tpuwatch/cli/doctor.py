"""`tpuwatch doctor`: check everything that tpuwatch and a TPU job need, with the fix for each problem."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.doctor import Check

_DONE, _WRONG, _INCONCLUSIVE = 0, 1, 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    options.add_config(parser)
    options.add_json(parser)
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        type=_name,
        help="run only these checks or areas; a name that is none lists them",
    )
    parser.add_argument(
        "--process",
        type=_pid,
        nargs="+",
        default=[],
        metavar="PID",
        help="check these processes; by default all with TPU variables, and the calling shell",
    )
    parser.add_argument(
        "--python",
        type=_python,
        metavar="PATH",
        help="check the packages of this interpreter; by default of those that run TPU jobs, or of python3",
    )


def run(args: argparse.Namespace) -> int:
    """0 if nothing is wrong, 1 if something is, 3 if the report is inconclusive."""
    from tpuwatch.config import Config
    from tpuwatch.core import ConfigError, SystemClock
    from tpuwatch.doctor import DoctorReport, Environment, is_conclusive, print_report, run_checks

    pids, python = tuple(args.process), args.python or ""
    try:
        config, config_error = options.load(args), None
    except ConfigError as error:  # one check among others
        config, config_error = Config(), error
    environment = Environment.of(config, os.environ, SystemClock(), config_error=config_error, pids=pids, python=python)
    checks = _chosen(args.only)
    report = DoctorReport.of(run_checks(checks, environment))
    options.show(report, print_report, as_json=args.json)
    if report.wrong:
        return _WRONG
    return _DONE if is_conclusive(checks, report.checks) else _INCONCLUSIVE


def _chosen(names: Iterable[str]) -> list[Check]:
    from tpuwatch.doctor import CHECKS

    wanted = set(names)
    return [check for check in CHECKS if not wanted or {check.id, check.area.value} & wanted]


def _name(text: str) -> str:
    import difflib

    from tpuwatch.doctor import CHECKS

    known = [*dict.fromkeys(check.area.value for check in CHECKS), *(check.id for check in CHECKS)]
    if text not in known:
        near = difflib.get_close_matches(text, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
        raise argparse.ArgumentTypeError(f"there is no check {text!r}; {hint}")
    return text


def _python(text: str) -> str:
    if not (os.path.isfile(text) and os.access(text, os.X_OK)):  # noqa: PTH113 (a text, as it was given)
        raise argparse.ArgumentTypeError(f"{text!r} is no interpreter: there is no such executable")
    return os.path.abspath(text)  # noqa: PTH100 (resolving it would leave its venv)


def _pid(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) < 2**31:
        raise argparse.ArgumentTypeError(f"{text!r} is not a process id")
    return int(text)
