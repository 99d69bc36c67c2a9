"""The environment of the command, and the messages to its operator before it starts."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from tpuwatch.config import DEFAULT_SOCKET, THIS_MACHINE, usable_config
from tpuwatch.core import TuneError, printable
from tpuwatch.model import KIND_VARIABLE, LAUNCH_VARIABLE, SET_VARIABLE, SIZE, WorkloadKind, kind_named
from tpuwatch.tune import LaunchEnvironment, launch_marks, own_directory, plan_directory, prepare, workload_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from tpuwatch.config import StartConfig
    from tpuwatch.model import TunePlan

_SHOWN: Final = 100  # characters of a value
_MAX_FAULTS: Final = 3  # that are reported


class PreparedRun(NamedTuple):  # in a fifth of the time that a dataclass takes to make
    """A launch as it begins."""

    launch: str  # its id
    workload: str
    environ: dict[str, str]  # of the command
    given: LaunchEnvironment
    plan: TunePlan | None  # None: nothing is tuned
    directory: Path | None  # the tune directory; None where there is none
    own: bool  # whether that is the user's own, so that the daemon does not decide
    notes: tuple[str, ...]  # sentences for the operator
    command: Sequence[str] = ()
    usable_config: bool = True  # False: the configuration could not be read, which a note says
    root: Path = THIS_MACHINE  # of the machine


def prepare_run(
    name: str | None,
    environ: Mapping[str, str],
    now: float,
    *,
    config: Path | None,
    tune: bool = True,
    kind: str | None = None,
    command: Sequence[str] = (),
) -> PreparedRun:
    """Prepare the environment of a command. `now`: seconds since the epoch. `kind`: of the workload, if it is given.

    A configuration that cannot be used is a note: the command runs all the same. Raises TuneError for a name that is
    none.
    """
    workload = workload_name(name, environ)
    start = usable_config(config, environ)
    notes = [_without(start.trouble)] if start.trouble else []
    plan, directory = None, None
    given = LaunchEnvironment(launch_marks(workload, {}))
    if tune:
        prepared = prepare(workload, environ, now, start=start)
        plan, given, directory = prepared.plan, prepared.given, prepared.directory
        notes += prepared.warnings
    else:
        directory = _directory(start, environ)
    if kind is not None:
        given.set[KIND_VARIABLE] = kind
    else:
        notes += _unknown_kind(environ)
    notes += _kept(given)
    notes += _faults({key: value for key, value in environ.items() if key not in given.set}, start.root)
    launch = os.urandom(12).hex()
    whole = {key: value for key, value in environ.items() if key not in given.unset}
    whole.update(given.set, **{LAUNCH_VARIABLE: launch})
    if start.socket != DEFAULT_SOCKET:
        from tpuwatch.workload import SOCKET_VARIABLE  # which takes milliseconds

        whole.setdefault(SOCKET_VARIABLE, str(start.socket))
    own = directory is not None and directory == _own(environ)
    return PreparedRun(
        launch,
        workload,
        whole,
        given,
        plan,
        directory,
        own,
        tuple(notes),
        command,
        usable_config=not start.trouble,
        root=start.root,
    )


def names(given: LaunchEnvironment) -> tuple[str, ...]:
    """The variables that tpuwatch set, without its marks."""
    return tuple(name for name in given.set.get(SET_VARIABLE, "").split(",") if name)


def _without(trouble: str) -> str:
    return f"{trouble}. The command runs all the same, by the plan that there is or by the defaults."


def _directory(start: StartConfig, environ: Mapping[str, str]) -> Path | None:
    try:
        return plan_directory(start.tune_dir, environ)
    except TuneError:
        return None


def _own(environ: Mapping[str, str]) -> Path | None:
    try:
        return own_directory(environ)
    except TuneError:
        return None


def _unknown_kind(environ: Mapping[str, str]) -> Iterator[str]:
    named = environ.get(KIND_VARIABLE)
    if named and kind_named(named) is None:
        kinds = ", ".join(kind.value for kind in WorkloadKind)
        yield f"{KIND_VARIABLE}={printable(named, _SHOWN)} is no kind of workload and does not count: give {kinds}."


def _kept(given: LaunchEnvironment) -> Iterator[str]:
    """What the operator has set himself, in one line."""
    if given.kept:
        values = ", ".join(
            f"{kept.name}={printable(kept.value, _SHOWN)} (not {printable(kept.ours, _SHOWN)})" for kept in given.kept
        )
        yield f"your own {values} {'stays' if len(given.kept) == 1 else 'stay'}."


def _faults(environ: Mapping[str, str], root: Path) -> Iterator[str]:
    """Values among the operator's own that libtpu takes for something else."""
    if not any("TPU" in name.upper() and not name.startswith("TPUWATCH_") for name in environ):
        return
    from tpuwatch.libtpu import beyond_memory, judge_values

    faults = [fault for _, fault in judge_values(environ)]
    total = _memory(root) if environ.get(SIZE) else None
    if total is not None and (fault := beyond_memory(environ, total)):
        faults.insert(0, fault)
    for fault in faults[:_MAX_FAULTS]:
        yield f"{fault.text} Right would be: {fault.fix}"


def _memory(root: Path) -> int | None:
    """The bytes of memory that this machine, or the cgroup that the command will run in, has."""
    from tpuwatch.host import ProcFs, read_memory

    return read_memory(ProcFs(root / "proc"), root, [os.getpid()], 0).total
