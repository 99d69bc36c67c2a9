"""`tpuwatch probe`: is it the TPU, the stack or the program?"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.cli import options

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

    from tpuwatch.config import Config
    from tpuwatch.model import ProbeReport

_TIMEOUT_SECONDS = 300.0  # the guides' own
_MAX_SECONDS = 3600.0
_FRAMEWORKS = ("jax", "tensorflow", "torch")
_CODES = {"works": 0, "inconclusive": 3}  # of all other verdicts 1
_EPILOG = (
    "Exit codes: 0 the TPU works, 1 the TPU, the stack, the program or the build is at fault, or there is no TPU, "
    "2 wrong use, 3 could not find out."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's own arguments."""
    parser.epilog = _EPILOG
    parser.add_argument(
        "--python",
        metavar="FILE",
        help="the interpreter that has JAX, TensorFlow or PyTorch/XLA (default: that of tpuwatch if it has JAX, of the "
        "active environment, or python3)",
    )
    parser.add_argument(
        "--framework", choices=_FRAMEWORKS, help="which of them (default: the first that the interpreter has)"
    )
    parser.add_argument(
        "--step",
        metavar="MODULE:FUNCTION",
        help="then run this function, without arguments, on the TPU and on the CPU, and compare what it returns",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=_TIMEOUT_SECONDS,
        metavar="S",
        help="seconds for each of the two, once the framework is imported (default: 300)",
    )
    parser.add_argument("--while-held", action="store_true", help="probe though a process holds the TPU")
    options.add_config(parser)
    options.add_json(parser)


def run(args: argparse.Namespace) -> int:
    """0 the TPU works, 1 something is at fault, 2 wrong use, 3 could not find out."""
    from tpuwatch.terminal import print_probe

    with options.config_to_look(args) as (config, _):
        document = probe(config, args.python, args.framework, args.step, args.timeout, while_held=args.while_held)
    options.show(document, print_probe, as_json=args.json)
    return exit_code(document)


def probe(
    config: Config,
    python: str | None = None,
    framework: str | None = None,
    step: str | None = None,
    seconds: float = _TIMEOUT_SECONDS,
    *,
    while_held: bool = False,
) -> ProbeReport:
    """Probe, leave it for the daemon where this user may, and return the document. Raises TpuwatchError."""
    from tpuwatch.config import THIS_MACHINE
    from tpuwatch.core import TpuwatchError, TuneError
    from tpuwatch.program import (
        ChildLimits,
        ProbeRequest,
        available_memory,
        interpreter,
        probe_command,
        probe_document,
        run_probe,
    )
    from tpuwatch.signals import leave_probe
    from tpuwatch.terminal import StageLine

    if config.host.root != THIS_MACHINE:
        raise TpuwatchError(f"the machine below {config.host.root} is simulated: it has no TPU to probe")
    python = interpreter(python, os.environ)
    directory, recorded = _directory(config)
    progress = StageLine()
    try:
        result = run_probe(
            ProbeRequest(probe_command(python), framework, step, while_held=while_held, hosts=_hosts(config)),
            limits=ChildLimits(seconds, available_memory()),
            environ=os.environ,
            on_stage=progress.show,
            directory=directory,
        )
    finally:
        progress.clear()
    if recorded:
        try:
            leave_probe(directory, result.probe)
        except TuneError as error:
            recorded = False
            options.print_note(f"the daemon does not learn of this probe: {error}.")
    return replace(probe_document(result, python), recorded=recorded)


def exit_code(document: ProbeReport) -> int:
    """Of a command that probed."""
    return _CODES.get(document.verdict.value, 1)


def _directory(config: Config) -> tuple[Path, bool]:
    """Where the lock of probes is, and whether that is the daemon's state directory, in which its judge sees them."""
    state = config.state.dir
    if state.is_dir() and os.access(state, os.W_OK | os.X_OK):
        return state, True
    from tpuwatch.tune import own_directory

    return own_directory(os.environ).parent, False


def _hosts(config: Config) -> int:
    """How many hosts the node has, as the environment or the metadata server says; 1 where neither does."""
    named = os.environ.get("TPU_WORKER_HOSTNAMES", "")
    if named or os.environ.get("TPU_SKIP_MDS_QUERY") or not config.cloud.enabled:
        return max(1, len([one for one in named.split(",") if one.strip()]))
    from tpuwatch.core import SystemClock
    from tpuwatch.restart import find_own_node

    hosts = find_own_node(config.cloud, SystemClock()).identity.get("hosts", "")
    return int(hosts) if hosts.isascii() and hosts.isdecimal() and len(hosts) < 6 else 1


def _seconds(text: str) -> float:
    value = float(text)
    if not 0 < value <= _MAX_SECONDS:
        raise ValueError(text)
    return value


_seconds.__name__ = f"number of seconds up to {_MAX_SECONDS:.0f}"
