"""Deciding a workload's next launch: what is known of it, the plan, its files, and who is told of what changed."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.auditfile import AuditFile
from tpuwatch.daemon import tunechanges
from tpuwatch.errors import TuneError
from tpuwatch.export.view import TunedStatus
from tpuwatch.jsontext import times
from tpuwatch.tune import visibility
from tpuwatch.tune.changes import changes
from tpuwatch.tune.deciding import make_plan, name_of
from tpuwatch.tune.envfile import environment_path, render, write_environment
from tpuwatch.tune.files import read_whole
from tpuwatch.tune.history import latest
from tpuwatch.tune.host import read_host
from tpuwatch.tune.model import SIZE, THRESHOLD, Step
from tpuwatch.tune.plan import environment, plan_path, planned, read_plan, write_plan
from tpuwatch.tune.records import make_box

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tpuwatch.clock import Clock
    from tpuwatch.config import Config
    from tpuwatch.export.metrics import Metrics
    from tpuwatch.model import Event, Launch
    from tpuwatch.node.board import Posted
    from tpuwatch.tune.changes import Change
    from tpuwatch.tune.model import Host, Plan

AUDIT_NAME: Final = "audit-tune.jsonl"
MOST_PLANS: Final = 100
UNSEEN_SECONDS: Final = 90 * 86_400.0  # a plan of a workload that was not launched for longer goes
_MOST_BYTES: Final = 1 << 18

_log = logging.getLogger(__name__)


class Planner:
    """Decides and writes by one configuration. For one thread."""

    def __init__(
        self,
        config: Config,
        *,
        posted: Callable[[], Posted],
        metrics: Metrics,
        clock: Clock,
        store: Callable[[Sequence[Event]], None],
    ) -> None:
        """`posted` tells what the witnesses said last: which launches live, and which accelerator this is. `store` puts
        events into the journal, at once where that can be.
        """
        self.directory = config.tune_dir
        self._config = config
        self._posted = posted
        self._metrics = metrics
        self._clock = clock
        self._store = store
        self._audit = AuditFile(config.state.dir / AUDIT_NAME)
        self._last: dict[str, Plan] = {}  # as it was told
        self._limits: dict[str, int] = {}  # memory of the cgroups that workloads were seen in, in bytes
        self._told = ""  # why nothing could be written, as it was logged

    @property
    def applies(self) -> bool:
        """Whether environment files are written."""
        return self._config.tune.mode == "apply"

    def make_directory(self) -> str:
        """Make the tune directory as it has to be; what is wrong if that fails, as a sentence."""
        try:
            make_box(self.directory)
        except OSError as error:
            return (
                f"{self.directory} cannot be made a place for plans and records of launches ({error.strerror}): make "
                "it writable for tpuwatch, or name another [tune] dir."
            )
        return ""

    def decide(self, workload: str, launches: Sequence[Launch]) -> TunedStatus:
        """Decide a workload's next launch by its launches, the oldest first; write that, and tell what has changed."""
        tune = self._config.tune
        places = visibility.places(str(tune.log_dir), as_me=False)  # nobody knows who will launch it
        before = self._last.get(workload) or self._standing(workload)
        host = self._host(workload, launches, before.generation if before is not None else "")
        plan = make_plan(self._config, launches, host, workload, self._clock.time(), places)
        found = changes(before, plan)
        last = launches[-1].started if launches else 0.0
        if found:
            file = self._goes_to(plan)
            told = tunechanges.events(plan, found, applies=self.applies, file=file, before=before, last_launch=last)
            # On record before it is done: a crash in between loses none, and the same decision has the same events.
            self._store(told)
        problem = self._write(plan)
        self._last[workload] = plan
        for change in found:
            self._tell(plan, change)
        made = plan.decision
        if made.step is Step.STUCK and (before is None or before.decision.step is not Step.STUCK):
            _log.warning("No premapped buffer that is allowed will do for %s: %s", workload, " ".join(made.reasons))
        counted = latest(launches, host, tune.window_launches)
        return TunedStatus(plan, len(counted), last, self._file(plan), problem)

    def begin_again(self, workload: str) -> None:
        """Its launches turned out to be another workload's, or were forgotten: what they led to is given no more."""
        if workload in self._last or plan_path(self.directory, workload).exists():
            self.decide(workload, ())

    def planned(self) -> dict[str, float]:
        """The workloads that have a plan on disk, and when it was written, in seconds since the epoch."""
        return planned(self.directory)

    def forget(self, last: Mapping[str, float]) -> list[str]:
        """Remove the plans of workloads that were not launched for long; `last`: when they were, as far as is known.

        Their environment files stay: a unit that names one does not start without it.
        """
        old = self._clock.time() - UNSEEN_SECONDS
        gone = [name for name, written in self.planned().items() if max(written, last.get(name, 0.0)) < old]
        for name in gone:
            try:
                plan_path(self.directory, name).unlink(missing_ok=True)
            except OSError as error:
                _log.warning("The old plan of %s cannot be removed: %s", name, error.strerror)
                continue
            self._last.pop(name, None)
            _log.info("The plan of %s is removed: it was not launched for %.0f days.", name, UNSEEN_SECONDS / 86_400)
        return gone

    def _host(self, workload: str, launches: Sequence[Launch], standing: str) -> Host:
        posted = self._posted()
        logs = posted.logs.value
        alive = [one for one in logs.launches if one.pid in logs.alive] if logs is not None else []
        own = [one for one in alive if name_of(one) == workload]
        host = read_host(
            launches=launches,
            accelerator=posted.identity.accelerator.value,
            pids=[one.pid for one in own],
            own=own,
            others=[one for one in alive if one not in own],
            standing=standing,
        )
        if own and host.total_bytes is not None:
            self._limits[workload] = host.total_bytes
        limit = self._limits.get(workload)  # of the cgroup that is gone with its processes
        if limit is None or host.total_bytes is None or limit >= host.total_bytes:
            return host
        available = None if host.available_bytes is None else min(limit, host.available_bytes)
        return replace(host, total_bytes=limit, available_bytes=available)

    def _standing(self, workload: str) -> Plan | None:
        try:
            return read_plan(self.directory, workload)
        except TuneError as error:
            _log.warning("%s. It is decided anew.", error)
            return None

    def _write(self, plan: Plan) -> str:
        """Write the plan, and its environment file where that is wanted; why that failed."""
        try:
            write_plan(self.directory, plan)
            if self.applies:
                write_environment(self.directory, plan)
        except TuneError as error:
            self._metrics.tune_write_failed()
            if str(error) != self._told:
                _log.warning("The next launch of %s is decided, but %s.", plan.workload, error)
            self._told = str(error)
            return f"{str(error)[:1].upper()}{str(error)[1:]}."
        self._told = ""
        return ""

    def _goes_to(self, plan: Plan) -> str:
        """The file that is written for the next launch."""
        return str((environment_path if self.applies else plan_path)(self.directory, plan.workload))

    def _file(self, plan: Plan) -> str:
        path = environment_path(self.directory, plan.workload)
        return str(path) if path.is_file() else ""

    def is_stale(self, plan: Plan) -> bool:
        """Whether there is an environment file that gives something else than the plan."""
        try:
            raw = read_whole(environment_path(self.directory, plan.workload), _MOST_BYTES)
            wanted = render(plan, environment(plan, {}), "systemd")
        except TuneError:
            return True
        return raw is not None and _assignments(raw.decode("utf-8", "replace")) != _assignments(wanted)

    def _tell(self, plan: Plan, change: Change) -> None:
        self._metrics.tune_changed(change.variable, change.direction)
        level = logging.INFO if change.variable in (SIZE, THRESHOLD) else logging.DEBUG  # the rest hardly ever changes
        _log.log(level, "%s", tunechanges.sentence(plan, change, applies=self.applies))
        self._audit.write(
            {
                **times("time", plan.decided),
                "workload": plan.workload,
                "mode": self._config.tune.mode,
                "step": plan.decision.step.value,
                "variable": change.variable,
                "direction": change.direction,
                "before": change.before,
                "after": change.after,
                "why": change.why,
                **(_grounds(plan) if change.variable in (SIZE, THRESHOLD) else {}),
            }
        )


def _grounds(plan: Plan) -> dict[str, Any]:
    made = plan.decision
    return {"reasons": list(made.reasons), "conflict": made.conflict or None, "trial": made.trial}


def _assignments(text: str) -> list[str]:
    return sorted(line for line in text.splitlines() if line and not line.startswith("#"))
