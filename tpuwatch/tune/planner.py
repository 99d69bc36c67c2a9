"""Decides a workload's next launch: from its launches, the host and the configuration to its plan, its files, and the
report of what has changed.
"""

from __future__ import annotations

import logging
import math
import os
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.config import stamp
from tpuwatch.core import AuditFile, TuneError, capital, read_trusted, times
from tpuwatch.launches import make_drop_box
from tpuwatch.libtpu import log_settings
from tpuwatch.model import (
    SIZE,
    THRESHOLD,
    Bounds,
    SizeStep,
    TunedStatus,
    TunePlan,
    VariableSetting,
    workload_of,
)
from tpuwatch.tune import changes as change_events
from tpuwatch.tune.changes import changes
from tpuwatch.tune.environment import environment_path, launch_environment, refresh_plan, render, write_environment
from tpuwatch.tune.history import latest_runs
from tpuwatch.tune.host import read_host
from tpuwatch.tune.plan import plan_path, plan_times, read_plan, write_plan
from tpuwatch.tune.policy import decide

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from tpuwatch.config import Config
    from tpuwatch.core import Clock
    from tpuwatch.libtpu import LogFacts
    from tpuwatch.metrics import Metrics
    from tpuwatch.model import Event, Launch, SizeDecision, Snapshot, TuneHost
    from tpuwatch.tune.changes import PlanChange

AUDIT_NAME: Final = "audit-tune.jsonl"
MAX_PLANS: Final = 100
UNSEEN_SECONDS: Final = 90 * 86_400.0  # a plan of a workload that was not launched for longer goes
_MAX_FILE_BYTES: Final = 1 << 18
_AHEAD_SECONDS: Final = 300.0  # by which a launch may be ahead of our clock
_NONE: Final[Mapping[str, float]] = MappingProxyType({})

_log = logging.getLogger(__name__)


def bounds_of(config: Config) -> Bounds:
    """What the configuration allows."""
    tune = config.tune
    return Bounds(
        min_bytes=tune.min_mib << 20,
        max_bytes=tune.max_mib << 20,
        memory_share=tune.memory_percent / 100,
        init_seconds=config.logs.slow_init_seconds,
        headroom=tune.headroom_percent / 100,
        window=tune.window_launches,
        power_of_two=tune.pathways,
        overrides=dict(tune.overrides),
    )


def launches_by_workload(
    launches: Iterable[Launch], resets: Mapping[str, float] = _NONE, now: float = math.inf
) -> dict[str, list[Launch]]:
    """The launches of each workload, the oldest first; those without a name are of DEFAULT_WORKLOAD.

    The workload that was launched last comes last. What was launched before the reset of its workload
    is left out, and what is in the future: a launch from when the clock was ahead must not stay the latest. A launch
    that only an output tells of counts where that states the size: neither environment nor log shows it.
    """
    found: dict[str, list[Launch]] = {}
    for launch in sorted(launches, key=lambda one: one.started):
        name = workload_of(launch)
        if launch.superseded or (launch.output and launch.premapped_bytes is None):
            continue
        if resets.get(name, 0.0) <= launch.started <= now + _AHEAD_SECONDS:
            found.setdefault(name, []).append(launch)
    return dict(sorted(found.items(), key=lambda item: item[1][-1].started))


def make_plan(
    config: Config,
    launches: Sequence[Launch],
    host: TuneHost,
    workload: str,
    now: float,
    places: Sequence[LogFacts],
) -> TunePlan:
    """All that is decided for a workload's next launch.

    `launches` are its own, the oldest first. `places` are the directories that libtpu's logs may go to, in the order in
    which they are wanted (tpuwatch.libtpu.log_settings.places).
    """
    tune, bounds = config.tune, bounds_of(config)
    decision = decide(launches, host, bounds)
    visible = log_settings.settings(places, log_mib=tune.log_mib, stderr_level=tune.stderr_level)
    plan = TunePlan(workload, now, _premapped(decision), decision, stamp(config.source), host.generation)
    return refresh_plan(plan, visible.settings, dict(sorted(bounds.overrides.items())))


def _premapped(decision: SizeDecision) -> tuple[VariableSetting, ...]:
    why = decision.reasons[0] if decision.reasons else ""
    sizes = {SIZE: decision.size_bytes, THRESHOLD: decision.threshold_bytes}
    return tuple(VariableSetting(name, str(value), why) for name, value in sizes.items() if value is not None)


class Planner:
    """Decides and writes by one configuration. For one thread."""

    def __init__(
        self,
        config: Config,
        *,
        snapshot: Callable[[], Snapshot],
        metrics: Metrics,
        clock: Clock,
        store: Callable[[Sequence[Event]], None],
    ) -> None:
        """`snapshot` returns the latest values of the signals: living launches, and which accelerator this is. `store`
        writes events into the store, at once where that can be.
        """
        self.directory = config.tune_dir
        self._config = config
        self._snapshot = snapshot
        self._metrics = metrics
        self._clock = clock
        self._store = store
        self._audit = AuditFile(config.state.dir / AUDIT_NAME)
        self._last: dict[str, TunePlan] = {}  # as it was reported
        self._limits: dict[str, int] = {}  # memory of the cgroups that workloads were seen in, in bytes
        self._logged_problem = ""  # why nothing could be written, as it was logged

    @property
    def acts(self) -> bool:
        """Whether environment files are written."""
        return self._config.tune.mode == "act"

    def make_directory(self) -> str:
        """Make the tune directory as it has to be; what is wrong if that fails, as a sentence."""
        try:
            make_drop_box(self.directory)
        except OSError as error:
            return (
                f"{self.directory} cannot be made a place for plans and records of launches ({error.strerror}): make "
                "it writable for tpuwatch, or name another [tune] dir."
            )
        return ""

    def decide(self, workload: str, launches: Sequence[Launch]) -> TunedStatus:
        """Decide a workload's next launch by its launches, the oldest first; write it, and report what has changed."""
        tune = self._config.tune
        places = log_settings.places(
            str(tune.log_dir), self._config.logs.paths, as_me=False
        )  # the user of the next launch is unknown
        before = self._last.get(workload) or self._standing(workload)
        host = self._host(workload, launches, before.generation if before is not None else "")
        plan = make_plan(self._config, launches, host, workload, self._clock.time(), places)
        found = changes(before, plan)
        last = launches[-1].started if launches else 0.0
        env_file = environment_path(self.directory, workload)
        if found:
            file = str(env_file if self.acts else plan_path(self.directory, workload))
            new = change_events.events(plan, found, acts=self.acts, file=file, before=before, last_launch=last)
            # On record before it is done: a crash in between loses none, and the same decision has the same events.
            self._store(new)
        problem = self._write(plan)
        self._last[workload] = plan
        for change in found:
            self._report(plan, change)
        made = plan.decision
        if made.step is SizeStep.UNSATISFIABLE and (before is None or before.decision.step is not made.step):
            _log.warning("No premapped buffer that is allowed will do for %s: %s", workload, " ".join(made.reasons))
        counted = latest_runs(launches, host, tune.window_launches)
        there = os.path.isfile(env_file)  # noqa: PTH113 (pathlib's raises where the directory may not be entered)
        return TunedStatus(plan, len(counted), last, str(env_file) if there else "", problem)

    def decide_without_launches(self, workload: str) -> None:
        """Decide again without history: its launches turned out to be another workload's, or were reset."""
        if workload in self._last or plan_path(self.directory, workload).exists():
            self.decide(workload, ())

    def forget(self, last: Mapping[str, float]) -> list[str]:
        """Remove the plans of workloads that were not launched for long; `last`: when they were, as far as is known.

        Their environment files stay: a unit that names one does not start without it.
        """
        old = self._clock.time() - UNSEEN_SECONDS
        gone = [name for name, written in plan_times(self.directory).items() if max(written, last.get(name, 0.0)) < old]
        for name in gone:
            try:
                plan_path(self.directory, name).unlink(missing_ok=True)
            except OSError as error:
                _log.warning("The old plan of %s cannot be removed: %s", name, error.strerror)
                continue
            self._last.pop(name, None)
            _log.info("The plan of %s is removed: it was not launched for %.0f days.", name, UNSEEN_SECONDS / 86_400)
        return gone

    def _host(self, workload: str, launches: Sequence[Launch], stored_generation: str) -> TuneHost:
        snapshot = self._snapshot()
        logs = snapshot.logs.value
        alive = [one for one in logs.launches if one.pid in logs.alive] if logs is not None else []
        own = [one for one in alive if workload_of(one) == workload]
        host = read_host(
            launches=launches,
            accelerator=snapshot.identity.accelerator.value,
            pids=[one.pid for one in own],
            others=[one for one in alive if one not in own],
            stored=stored_generation,
            root=self._config.host.root,
        )
        if own and host.total_bytes is not None:
            self._limits[workload] = host.total_bytes
        limit = self._limits.get(workload)  # of the cgroup that is gone with its processes
        if limit is None or host.total_bytes is None or limit >= host.total_bytes:
            return host
        return replace(host, total_bytes=limit)

    def _standing(self, workload: str) -> TunePlan | None:
        try:
            return read_plan(self.directory, workload)
        except TuneError as error:
            _log.warning("%s. It is decided again.", error)
            return None

    def _write(self, plan: TunePlan) -> str:
        """Write the plan, and its environment file where that is wanted; why that failed."""
        try:
            write_plan(self.directory, plan)
            if self.acts:
                write_environment(self.directory, plan)
        except TuneError as error:
            self._metrics.tune.count_write_failure()
            if str(error) != self._logged_problem:
                _log.warning("The next launch of %s is decided, but %s.", plan.workload, error)
            self._logged_problem = str(error)
            return capital(f"{error}.")
        self._logged_problem = ""
        return ""

    def is_stale(self, plan: TunePlan) -> bool:
        """Whether there is an environment file that gives something else than the plan."""
        try:
            raw = read_trusted(environment_path(self.directory, plan.workload), _MAX_FILE_BYTES)
            wanted = render(plan, launch_environment(plan, {}), "systemd")
        except TuneError:
            return True
        return raw is not None and _assignments(raw.decode("utf-8", "replace")) != _assignments(wanted)

    def _report(self, plan: TunePlan, change: PlanChange) -> None:
        self._metrics.tune.count_change(change.variable, change.direction)
        level = logging.INFO if change.variable in (SIZE, THRESHOLD) else logging.DEBUG  # the rest hardly ever changes
        made = plan.decision
        grounds: dict[str, Any] = {}
        if change.variable in (SIZE, THRESHOLD):
            grounds = {"reasons": list(made.reasons), "conflict": made.conflict or None, "trial": made.trial}
        _log.log(level, "%s", change_events.sentence(plan, change, acts=self.acts))
        facts = change_events.facts(plan, change, acts=self.acts)
        self._audit.write({**times("time", plan.decided), **facts, **grounds})


def _assignments(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line and not line.startswith("#"))
