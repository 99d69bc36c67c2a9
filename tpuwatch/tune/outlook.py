"""What each workload's next launch would get, decided now from its launches, without the daemon."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import StoreError, TpuwatchError, TuneError
from tpuwatch.host import ProcFs
from tpuwatch.launches import LaunchTracker, Life, read_records
from tpuwatch.libtpu import log_settings
from tpuwatch.model import (
    DEFAULT_WORKLOAD,
    EnvironmentDocument,
    KeptVariableDocument,
    LaunchDocument,
    NextLaunchDocument,
    SizeStep,
    StandingPlanDocument,
)
from tpuwatch.store import FILE_NAME, StoreReader
from tpuwatch.tune.environment import LaunchEnvironment, launch_environment
from tpuwatch.tune.history import host_as_observed, latest_runs
from tpuwatch.tune.host import read_host
from tpuwatch.tune.plan import plan_times, read_plan, read_resets
from tpuwatch.tune.planner import launches_by_workload, make_plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from tpuwatch.config import Config
    from tpuwatch.model import Launch, TuneHost, TunePlan

STORE, DAEMON, RECORDS, UNREAD = "store", "daemon", "records", "plans"  # kinds of history
_MAX_LAUNCHES: Final = 1000  # of all workloads
_MAX_ALIVE: Final = 100  # launches whose processes are looked for


@dataclass(frozen=True, slots=True)
class History:
    """Launches of all workloads, and where they were found."""

    launches: Sequence[Launch]
    kind: str  # STORE, DAEMON, RECORDS; UNREAD: there may be launches, but this user cannot see them
    where: str  # for people


def read_history(
    config: Config, directory: Path, daemon: str, ask_daemon: Callable[[int], Iterable[Launch]]
) -> History:
    """The launches of the store, where this user may read it; else of the daemon, if it answers; else those that
    `tpuwatch exec` left in the tune `directory`, where that is the user's own.

    `ask_daemon` requests so many launches from the daemon, whose address is `daemon`. It is the daemon that is meant
    only if the configured state directory may be its own; of another one `tpuwatch exec` knows nothing either. Raises
    TuneError where there are records that cannot be read.
    """
    try:
        launches = StoreReader.open(config.state.dir).launches(_MAX_LAUNCHES)
        return History(launches, STORE, f"the store in {config.state.dir}")
    except StoreError as error:
        unread = error
    ours = directory == config.tune_dir or _has_store(config.state.dir)
    other = ""
    try:
        asked = list(ask_daemon(_MAX_LAUNCHES if ours else 1))
        if ours:
            return History(asked, DAEMON, f"the daemon at {daemon}")
        other = f"; the daemon at {daemon} has another state directory than {config.state.dir}, and does not count"
    except (TpuwatchError, ValueError):  # none runs, or a newer one
        pass
    if directory == config.tune_dir and _has_store(config.state.dir):
        return History((), UNREAD, f"{unread}; no daemon answers either")
    try:
        records = read_records(directory)
    except OSError as error:
        raise TuneError(f"cannot read the records in {directory}: {error.strerror}; may this user read it?") from error
    found = {
        (launch.pid, launch.started): replace(launch, workload=launch.workload or record.workload)
        for record in records
        for launch in record.launches
    }
    return History(list(found.values()), RECORDS, f"the records of `tpuwatch exec` in {directory}{other}")


def _has_store(directory: Path) -> bool:
    """Whether a daemon has its store there, as far as this user may see."""
    try:
        (directory / FILE_NAME).stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return True


@dataclass(frozen=True, slots=True)
class Outlook:
    """A workload: its launches that count, the oldest first, and what is decided by them."""

    plan: TunePlan
    launches: Sequence[Launch]
    host: TuneHost
    given: LaunchEnvironment  # what the plan makes of this command's own environment
    stored: TunePlan | None  # the plan that is in the tune directory
    unusable: str = ""  # why that cannot be used, a clause
    reset: float | None = None  # since when launches count, in seconds since the epoch; None: from the first
    warnings: tuple[str, ...] = ()

    @property
    def unseen(self) -> bool:
        """Whether it is the plan that stands, of whose launches nothing could be read."""
        return self.plan is self.stored

    @property
    def is_wrong(self) -> bool:
        """Whether no allowed size meets what the workload needs."""
        decision = self.plan.decision
        return decision.step is SizeStep.UNSATISFIABLE or bool(decision.conflict)

    @property
    def stands(self) -> bool:
        """Whether the plan in the tune directory gives what is decided now."""
        return self.stored is not None and _values(self.stored) == _values(self.plan)

    def document(self) -> NextLaunchDocument:
        """It for JSON."""
        plan, stored, given = self.plan, self.stored, self.given
        kept = tuple(KeptVariableDocument(**one._asdict()) for one in given.kept)
        return NextLaunchDocument(
            workload=plan.workload,
            decided=plan.decided,
            **{one.name: getattr(plan.decision, one.name) for one in fields(plan.decision)},
            settings=plan.settings,
            environment=EnvironmentDocument(set=given.set, kept=kept),
            unusable=self.unusable,
            stored=StandingPlanDocument(decided=stored.decided, same=self.stands) if stored is not None else None,
            host=self.host,
            warnings=self.warnings,
            reset=self.reset,
            launches=tuple(map(LaunchDocument.of, self.launches)),
        )


@dataclass(frozen=True, slots=True)
class TuneContext:
    """What the decisions of one command have in common."""

    config: Config
    directory: Path  # the tune directory
    environ: Mapping[str, str]
    now: float  # seconds since the epoch


def look_ahead(
    context: TuneContext, history: History, wanted: str | None, forgotten: Mapping[str, float]
) -> list[Outlook]:
    """What each workload's next launch would get, or the one that is `wanted`; the one launched last comes last.

    `forgotten`: resets, besides those that are on disk. Without launches that can be read, the plans that stand are
    shown as they are.
    """
    resets = {**read_resets(context.directory), **forgotten}
    found = launches_by_workload(history.launches, resets, context.now)
    alive = _alive(history.launches, context.config.host.root)
    stored = _stored(context, wanted)
    if history.kind == UNREAD:
        return [_as_it_stands(context, plan, found, alive) for plan, _ in stored.values() if plan is not None]
    reset = [name for name in stored if name in resets and name not in found]
    names = [wanted] if wanted else [*reset, *found] or [DEFAULT_WORKLOAD]
    return [_decided(context, name, found, alive, stored.get(name, (None, "")), resets.get(name)) for name in names]


def _decided(
    context: TuneContext,
    name: str,
    found: Mapping[str, list[Launch]],
    alive: Mapping[str, list[Launch]],
    stored: tuple[TunePlan | None, str],
    reset: float | None,
) -> Outlook:
    tune, launches = context.config.tune, found.get(name, [])
    known = stored[0].generation if stored[0] is not None else ""
    machine = _host(context, name, found, alive, known)
    counted = latest_runs(launches, machine, tune.window_launches)
    host = host_as_observed(counted, machine)
    places = log_settings.places(
        str(tune.log_dir), context.config.logs.paths, as_me=False
    )  # the user of the next launch is unknown
    plan = make_plan(context.config, launches, host, name, context.now, places)
    warnings = log_settings.settings(places, log_mib=tune.log_mib, stderr_level=tune.stderr_level).warnings
    given = launch_environment(plan, context.environ)
    return Outlook(plan, counted, host, given, *stored, reset, warnings)


def _as_it_stands(
    context: TuneContext, plan: TunePlan, found: Mapping[str, list[Launch]], alive: Mapping[str, list[Launch]]
) -> Outlook:
    host = _host(context, plan.workload, found, alive, plan.generation)
    return Outlook(plan, (), host, launch_environment(plan, context.environ), plan)


def _host(
    context: TuneContext, name: str, found: Mapping[str, list[Launch]], alive: Mapping[str, list[Launch]], stored: str
) -> TuneHost:
    return read_host(
        launches=[one for several in found.values() for one in several],
        environ=context.config.host.environ(context.environ),
        pids=[os.getpid(), *(one.pid for one in alive.get(name, ()))],
        others=[one for other, several in alive.items() for one in several if other != name],
        stored=stored,
        root=context.config.host.root,
    )


def _stored(context: TuneContext, wanted: str | None) -> dict[str, tuple[TunePlan | None, str]]:
    """The plans in the tune directory, each with why it cannot be used."""
    names = [wanted] if wanted else sorted(plan_times(context.directory))
    return {name: _read(context.directory, name) for name in names}


def _read(directory: Path, workload: str) -> tuple[TunePlan | None, str]:
    try:
        return read_plan(directory, workload), ""
    except TuneError as error:
        return None, str(error)


def _alive(launches: Sequence[Launch], root: Path) -> dict[str, list[Launch]]:
    """The launches whose processes live, by workload. Those of the newest are looked for."""
    open_ended = sorted((one for one in launches if one.ended is None), key=lambda one: one.started)[-_MAX_ALIVE:]
    tracker = LaunchTracker(open_ended, processes=ProcFs(root / "proc"))
    return launches_by_workload(one for one in tracker.latest() if tracker.life(one) is Life.ALIVE)


def _values(plan: TunePlan) -> dict[str, str]:
    return {setting.name: setting.value for setting in plan.settings}
