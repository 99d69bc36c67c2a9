"""The processes that use a TPU, and the settings that they and the calling shell have."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tpuwatch.doctor.environment import MAX_BYTES, cut
from tpuwatch.doctor.people import Person, from_status
from tpuwatch.processes import ProcFs, shown_command
from tpuwatch.tune.variables import is_tpu_name

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.doctor.environment import Environment

# Names by which a setup, not a TPU program, is told of a TPU do not make a TPU program of a process.
_USES = re.compile(r"LIBTPU_INIT_ARGS|TPU_(?!NAME|ZONE|PROJECT)|PJRT_DEVICE")
_MAX_PROCESSES = 20_000
_UNSEEN = "unseen"
_SHELL = "this shell"
_NAMED = 3  # processes that a sentence names


@dataclass(frozen=True, slots=True)
class Job:
    """A process that was started with TPU variables, or that was asked for by its number."""

    pid: int
    person: Person
    command: tuple[str, ...]
    environ: Mapping[str, str]  # all of it

    @property
    def name(self) -> str:
        """The process as a sentence names it."""
        shown = shown_command("\0".join(self.command).encode())
        return f"process {self.pid} ({cut(shown, 40) or '?'})"


@dataclass(frozen=True, slots=True)
class Jobs:
    """The TPU's processes, and how many processes could not be looked into."""

    seen: tuple[Job, ...]
    unseen: int


@dataclass(frozen=True, slots=True)
class Setting:
    """TPU variables, and everyone who has exactly these."""

    variables: Mapping[str, str]
    holders: tuple[Job | None, ...]  # None is the calling shell

    @property
    def where(self) -> str:
        """Everyone who has them, for "… in this shell and process 4711 (python3)"."""
        names = [_SHELL if job is None else job.name for job in self.holders]
        rest = len(names) - _NAMED
        return ", ".join(names[:_NAMED]) + (f" and {rest} more" if rest > 0 else "")


def find_jobs(environment: Environment) -> Jobs:
    """The processes to look at: those that were asked for, else all with TPU variables. Raises OSError for a pid
    that was asked for and cannot be looked into."""
    return environment.once("jobs", lambda: _find_jobs(environment))


def settings(environment: Environment) -> list[Setting]:
    """Every set of TPU variables that somebody has; the calling shell's is among them even when it is empty."""
    owners: list[tuple[Mapping[str, str], Job | None]] = [
        (tpu_variables(job.environ), job) for job in find_jobs(environment).seen
    ]
    if not environment.pids:
        owners.insert(0, (tpu_variables(environment.environ), None))
    groups: dict[tuple[tuple[str, str], ...], list[Job | None]] = {}
    for variables, owner in owners:
        groups.setdefault(tuple(sorted(variables.items())), []).append(owner)
    return [Setting(dict(variables), tuple(holders)) for variables, holders in groups.items()]


def users(environment: Environment) -> list[Person]:
    """Who the jobs run as; where there are none, who the doctor runs as."""
    people = {job.person.uid: job.person for job in find_jobs(environment).seen}
    return list(people.values()) or [environment.me]


def tpu_variables(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that have to do with TPUs by their names, misspelt ones among them."""
    return {name: value for name, value in environ.items() if is_tpu_name(name)}


def _find_jobs(environment: Environment) -> Jobs:
    if environment.pids:
        return Jobs(tuple(_job(environment, pid, _environ(environment, pid)) for pid in environment.pids), 0)
    looked = [_look(environment, pid) for pid in ProcFs(environment.path("/proc")).pids()[:_MAX_PROCESSES]]
    jobs = sorted((job for job in looked if isinstance(job, Job)), key=lambda job: job.pid)
    return Jobs(tuple(jobs), sum(job is _UNSEEN for job in looked))


def _look(environment: Environment, pid: int) -> Job | str | None:
    """The process if it uses a TPU; _UNSEEN where that cannot be told, None if it does not, is ourselves, or ended."""
    if pid == os.getpid():
        return None
    try:
        environ = _environ(environment, pid)
        return _job(environment, pid, environ) if any(_USES.match(name) for name in environ) else None
    except PermissionError:
        return _UNSEEN
    except (OSError, ValueError):
        return None


def _environ(environment: Environment, pid: int) -> dict[str, str]:
    with open(environment.path(f"/proc/{pid}/environ"), "rb") as file:
        raw = file.read(MAX_BYTES)
    pairs = (entry.decode("utf-8", "replace").partition("=") for entry in raw.split(b"\0"))
    return {name: value for name, sign, value in pairs if sign}


def _job(environment: Environment, pid: int, environ: Mapping[str, str]) -> Job:
    person = from_status(environment.text(f"/proc/{pid}/status"))
    command = environment.text(f"/proc/{pid}/cmdline").split("\0")
    return Job(pid, person, tuple(word for word in command if word), environ)
