"""The processes that use a TPU, and the TPU variables of them and of the calling shell."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.doctor.environment import MAX_BYTES, cut, once
from tpuwatch.doctor.users import User, user_of_status
from tpuwatch.host import ProcFs, parse_environ, shown_command
from tpuwatch.libtpu import is_tpu_name
from tpuwatch.program import OWN_CHILD

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.doctor.environment import Environment

# TPU_NAME, TPU_ZONE and TPU_PROJECT alone are set by a setup and do not mark a TPU program.
_TPU_VARIABLE = re.compile(r"LIBTPU_INIT_ARGS|TPU_(?!NAME|ZONE|PROJECT)|PJRT_DEVICE")
_MAX_PROCESSES = 20_000
_UNREADABLE = "unreadable"
_SHELL = "this shell"
_MAX_NAMED = 3  # processes that a sentence names


@dataclass(frozen=True, slots=True)
class Job:
    """A process that was started with TPU variables, or that --process names."""

    pid: int
    user: User
    command: tuple[str, ...]
    environ: Mapping[str, str]  # all of it

    @property
    def name(self) -> str:
        """The process as a sentence names it."""
        shown = shown_command("\0".join(self.command).encode())
        return f"process {self.pid} ({cut(shown, 40) or '?'})"


@dataclass(frozen=True, slots=True)
class Jobs:
    """The TPU processes, and the number of processes that could not be read."""

    seen: tuple[Job, ...]
    unreadable: int


@dataclass(frozen=True, slots=True)
class VariableSet:
    """TPU variables, and everything that has exactly these."""

    variables: Mapping[str, str]
    holders: tuple[Job | None, ...]  # None is the calling shell

    @property
    def where(self) -> str:
        """Everything that has them, for "… in this shell and process 4711 (python3)"."""
        names = [_SHELL if job is None else job.name for job in self.holders]
        rest = len(names) - _MAX_NAMED
        return ", ".join(names[:_MAX_NAMED]) + (f" and {rest} more" if rest > 0 else "")


@once
def find_jobs(environment: Environment) -> Jobs:
    """The processes of --process, else all with TPU variables. Raises OSError if one of --process cannot be read."""
    if environment.pids:
        return Jobs(tuple(_job(environment, pid, _environ(environment, pid)) for pid in environment.pids), 0)
    found = [_examine(environment, pid) for pid in ProcFs(environment.path("/proc")).pids()[:_MAX_PROCESSES]]
    jobs = sorted((job for job in found if isinstance(job, Job)), key=lambda job: job.pid)
    return Jobs(tuple(jobs), sum(job is _UNREADABLE for job in found))


def variable_sets(environment: Environment) -> list[VariableSet]:
    """Every set of TPU variables in use, and that of the calling shell even if it is empty."""
    owners: list[tuple[Mapping[str, str], Job | None]] = [
        (tpu_variables(job.environ), job) for job in find_jobs(environment).seen
    ]
    if not environment.pids:
        owners.insert(0, (tpu_variables(environment.environ), None))
    groups: dict[tuple[tuple[str, str], ...], list[Job | None]] = {}
    for variables, owner in owners:
        groups.setdefault(tuple(sorted(variables.items())), []).append(owner)
    return [VariableSet(dict(variables), tuple(holders)) for variables, holders in groups.items()]


def job_users(environment: Environment) -> list[User]:
    """The users of the jobs; if there are none, the user of the doctor."""
    found = {job.user.uid: job.user for job in find_jobs(environment).seen}
    return list(found.values()) or [environment.me]


def tpu_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables with TPU names, including misspelt ones."""
    return {name: value for name, value in environ.items() if is_tpu_name(name)}


def _examine(environment: Environment, pid: int) -> Job | str | None:
    """The process if it uses a TPU; None if it does not, is tpuwatch's own, or has ended; else _UNREADABLE."""
    if pid == os.getpid():
        return None
    try:
        environ = _environ(environment, pid)
        if OWN_CHILD in environ:
            return None
        return _job(environment, pid, environ) if any(_TPU_VARIABLE.match(name) for name in environ) else None
    except PermissionError:
        return _UNREADABLE
    except (OSError, ValueError):
        return None


def _environ(environment: Environment, pid: int) -> dict[str, str]:
    with open(environment.path(f"/proc/{pid}/environ"), "rb") as file:
        raw = file.read(MAX_BYTES)
    return parse_environ(raw)


def _job(environment: Environment, pid: int, environ: Mapping[str, str]) -> Job:
    user = user_of_status(environment.text(f"/proc/{pid}/status"))
    command = environment.text(f"/proc/{pid}/cmdline").split("\0")
    return Job(pid, user, tuple(word for word in command if word), environ)
