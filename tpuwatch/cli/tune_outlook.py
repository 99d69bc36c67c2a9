"""What each workload's next launch would get, decided now from its launches, and what the plan that stands says."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.cli.tune_history import UNREAD
from tpuwatch.errors import TuneError
from tpuwatch.launches.life import Life
from tpuwatch.launches.tracker import LaunchTracker
from tpuwatch.processes import ProcFs
from tpuwatch.tune import visibility
from tpuwatch.tune.deciding import make_plan, workloads
from tpuwatch.tune.history import latest, shown
from tpuwatch.tune.host import read_host
from tpuwatch.tune.model import DEFAULT_WORKLOAD
from tpuwatch.tune.plan import Given, environment, plan_directory, planned, read_plan
from tpuwatch.tune.resets import read_resets

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tpuwatch.cli.tune_history import History
    from tpuwatch.config import Config
    from tpuwatch.model import Launch
    from tpuwatch.tune.model import Host, Plan

_LIVING: Final = 100  # launches whose processes are looked for


@dataclass(frozen=True, slots=True)
class Outlook:
    """A workload: its launches that count, the oldest first, and what is decided by them."""

    plan: Plan
    launches: Sequence[Launch]
    host: Host
    given: Given  # what the plan makes of this command's own environment
    standing: Plan | None  # the plan that is in the tune directory
    unusable: str = ""  # why that cannot be used, a clause
    reset: float | None = None  # since when launches count, in seconds since the epoch; None: from the first
    warnings: tuple[str, ...] = ()

    @property
    def unseen(self) -> bool:
        """Whether it is the plan that stands, of whose launches nothing could be read."""
        return self.plan is self.standing

    @property
    def stands(self) -> bool:
        """Whether the plan in the tune directory gives what is decided now."""
        return self.standing is not None and _values(self.standing) == _values(self.plan)


def tune_directory(config: Config, environ: Mapping[str, str]) -> Path:
    """The daemon's directory where it takes this user's records, else the user's own."""
    return plan_directory(config.tune_dir, environ)


@dataclass(frozen=True, slots=True)
class Here:
    """What the decisions on this machine have in common."""

    config: Config
    directory: Path  # the tune directory
    environ: Mapping[str, str]
    now: float  # seconds since the epoch


def look_ahead(here: Here, history: History, wanted: str | None, forgotten: Mapping[str, float]) -> list[Outlook]:
    """What each workload's next launch would get, or the one that is `wanted`; the one launched last comes last.

    `forgotten`: resets, besides those that are on disk. Without launches that can be read, the plans that stand are
    shown as they are.
    """
    resets = {**read_resets(here.directory), **forgotten}
    found = workloads(history.launches, resets, here.now)
    alive = _alive(history.launches)
    standing = _standing(here, wanted)
    if history.kind == UNREAD:
        return [_as_it_stands(here, plan, found, alive) for plan, _ in standing.values() if plan is not None]
    reset = [name for name in standing if name in resets and name not in found]
    names = [wanted] if wanted else [*reset, *found] or [DEFAULT_WORKLOAD]
    return [_decided(here, name, found, alive, standing.get(name, (None, "")), resets.get(name)) for name in names]


def _decided(
    here: Here,
    name: str,
    found: Mapping[str, list[Launch]],
    alive: Mapping[str, list[Launch]],
    standing: tuple[Plan | None, str],
    reset: float | None,
) -> Outlook:
    tune, launches = here.config.tune, found.get(name, [])
    known = standing[0].generation if standing[0] is not None else ""
    told = _host(here, name, found, alive, known)
    counted = latest(launches, told, tune.window_launches)
    host = shown(counted, told)
    places = visibility.places(str(tune.log_dir), as_me=False)  # nobody knows who will launch it
    plan = make_plan(here.config, launches, host, name, here.now, places)
    warnings = visibility.settings(places, log_mib=tune.log_mib, stderr_level=tune.stderr_level).warnings
    given = environment(plan, here.environ)
    return Outlook(plan, counted, host, given, *standing, reset, warnings)


def _as_it_stands(
    here: Here, plan: Plan, found: Mapping[str, list[Launch]], alive: Mapping[str, list[Launch]]
) -> Outlook:
    host = _host(here, plan.workload, found, alive, plan.generation)
    return Outlook(plan, (), host, environment(plan, here.environ), plan)


def _host(
    here: Here, name: str, found: Mapping[str, list[Launch]], alive: Mapping[str, list[Launch]], standing: str
) -> Host:
    return read_host(
        launches=[one for several in found.values() for one in several],
        environ=here.environ,
        pids=[os.getpid(), *(one.pid for one in alive.get(name, ()))],
        own=alive.get(name, ()),
        others=[one for other, several in alive.items() for one in several if other != name],
        standing=standing,
    )


def _standing(here: Here, wanted: str | None) -> dict[str, tuple[Plan | None, str]]:
    """The plans in the tune directory, each with why it cannot be used."""
    names = [wanted] if wanted else sorted(planned(here.directory))
    return {name: _read(here.directory, name) for name in names}


def _read(directory: Path, workload: str) -> tuple[Plan | None, str]:
    try:
        return read_plan(directory, workload), ""
    except TuneError as error:
        return None, str(error)


def _alive(launches: Sequence[Launch]) -> dict[str, list[Launch]]:
    """The launches whose processes live, by workload. Those of the newest are looked for."""
    open_ended = sorted((one for one in launches if one.ended is None), key=lambda one: one.started)[-_LIVING:]
    tracker = LaunchTracker(open_ended, processes=ProcFs())
    return workloads(one for one in tracker.latest() if tracker.life(one) is Life.ALIVE)


def _values(plan: Plan) -> dict[str, str]:
    return {setting.name: setting.value for setting in plan.settings}
