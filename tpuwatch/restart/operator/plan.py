"""What a restart of a node would do and what it costs, in words, before anything is done."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, length
from tpuwatch.model import Phase
from tpuwatch.restart.policy import budgets
from tpuwatch.restart.policy.settings import PolicySettings
from tpuwatch.restart.workflow.types import ApiCall

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from tpuwatch.config import Config
    from tpuwatch.model import RestartRecord, Use
    from tpuwatch.restart.operator.report import NodeReport
    from tpuwatch.restart.workflow.types import NodeObservation, PhaseLimits, Step

_MAX_HOLDERS: Final = 5


@dataclass(frozen=True, slots=True)
class RestartPlan:
    """The record that would be written, and the first step that a driver would take with it."""

    record: RestartRecord
    observation: NodeObservation
    report: NodeReport
    step: Step
    limits: PhaseLimits

    @property
    def impossible(self) -> bool:
        """Whether tpuwatch cannot restart the node, and only an operator can help."""
        return not self.step.record.open

    @property
    def healthy(self) -> bool:
        """Whether neither the cloud nor the verdict has anything against the node."""
        return self.observation.well and self.report.healthy

    def steps(self) -> str:
        """What will be done, a sentence."""
        settle = f"then it is watched until it has been healthy for {length(self.limits.well_seconds)}"
        if self.step.call is ApiCall.STOP:
            return f"The node is stopped and started again; {settle}."
        if self.step.call is ApiCall.START:
            return f"The node is STOPPED: it is started; {settle}."
        if self.step.call is ApiCall.RESET:
            name = clean(self.observation.queued_resource, 100)
            return f"Its queued resource {name} is reset, which restarts all {self.observation.hosts} hosts; {settle}."
        return f"{self.step.sentence} Then the node is restarted; {settle}."

    def advice(self) -> str:
        """What an operator can do about a node that cannot be restarted, with commands to copy."""
        cloud = self.report.document.cloud
        words = {} if cloud is None else {"TYPE": cloud.accelerator, "VERSION": cloud.runtime_version}
        text = self.step.record.note
        for word, known in words.items():
            if known:
                text = text.replace(f"={word}", f"={shlex.quote(clean(known, 100))}")
        return re.sub(r"(-version=[^ `]+)", r"\1 --spot", text) if self.observation.spot else text

    def costs(self, records: Iterable[RestartRecord], *, own_node: bool) -> Iterator[str]:
        """What the restart costs, a sentence or a line each. `records` are those of all nodes."""
        if own_node:
            yield (
                "This machine belongs to the node and goes down with it, so that it cannot start the node again. Be "
                "ready to run this command, or to start the node, from another machine."
            )
        if self.observation.state != "STOPPED":
            yield "Everything that runs on the node ends; what its jobs have not written to a checkpoint is lost."
            yield from self._jobs()
        if self.step.call is ApiCall.RESET:
            yield from self._beside()
            yield "The machines and their disks are kept, as far as is known."
        elif self.step.call is ApiCall.START:
            yield "If the zone has no capacity for it now, the start is retried until it has."
        else:
            yield (
                "A stop gives the capacity back. If another user takes it, the node stays stopped until there is "
                "capacity again, which may take hours; the start is retried until it succeeds."
            )
        yield self._duration(records)

    def _beside(self) -> Iterator[str]:
        if self.observation.beside is None:
            yield (
                "Other nodes of the queued resource are restarted with it, and their jobs end. Which it has could not "
                f"be found out. {self.observation.beside_fault}".rstrip()
            )
        for node in self.observation.beside or ():
            yield f"{node.name} of the same queued resource is restarted with it, and its jobs end. It is {node.said}."

    def _jobs(self) -> Iterator[str]:
        holders = self.report.holders
        if holders is None:
            yield "Which jobs run there cannot be seen from this machine."
        elif not holders:
            yield "No process is seen to hold the TPU of this host now."
        else:
            yield f"On this host the TPU is held by {'; '.join(holders[:_MAX_HOLDERS])}."
            if len(holders) > _MAX_HOLDERS:
                yield f"… and by {len(holders) - _MAX_HOLDERS} more."

    def _duration(self, records: Iterable[RestartRecord]) -> str:
        stops = self.step.call is not ApiCall.START
        seconds = [
            attempt.ended - attempt.began
            for record in records
            for attempt in record.history
            if attempt.phase is Phase.DONE
            and attempt.action is self.record.action
            and bool(attempt.stops) is stops
            and attempt.ended > attempt.began
        ]
        limits = self.limits
        starts_only = self.step.call in (ApiCall.START, ApiCall.RESET)
        deadline = limits.start_seconds if starts_only else limits.stop_seconds + limits.start_seconds
        alert = f"An operator is alerted after {length(deadline)}"
        if not seconds:
            return f"It takes some minutes, usually 4 to 10. {alert}."
        if len(seconds) == 1:
            return f"The one in the ledger took {length(seconds[0])}. {alert}."
        return f"The {len(seconds)} in the ledger took {length(min(seconds))} to {length(max(seconds))}. {alert}."

    def budget(self, config: Config, view: budgets.LedgerView, now: float) -> tuple[Use, list[str]]:
        """What is used of the budgets, and that in lines. They limit tpuwatch, not its operators."""
        settings = PolicySettings.of(config)
        target = self.record.target
        created = self.observation.created
        use = budgets.use(view, target, budgets.UNKNOWN_FLEET_SIZE, settings, now, created)
        lines = [
            f"Restarts of this node within {length(settings.node_window_seconds)}: {use.node} of {use.node_max}; of "
            f"all nodes within {length(settings.fleet_window_seconds)}: {use.fleet} of {use.fleet_max}."
        ]
        cause = self.report.verdict
        hold = budgets.hold(view, target, self.record.action, cause, budgets.UNKNOWN_FLEET_SIZE, settings, now, created)
        if hold is not None:
            lines.append(f"tpuwatch itself would not restart it now: {hold.sentence}. An operator may.")
        return use, lines
