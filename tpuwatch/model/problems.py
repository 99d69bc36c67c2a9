"""What is wrong now: the one computation behind status, page, exit codes and metrics.

A finding that is over (what failed has worked since, or the finding is old) is a past one, and counts nowhere.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ended, format_seconds
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.display import is_bad, verdict_words, worst_first
from tpuwatch.model.launches import CAME_UP
from tpuwatch.model.restart import Phase
from tpuwatch.model.slices import PeerState
from tpuwatch.model.verdict import WELL, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from tpuwatch.model.events import Event, Finding
    from tpuwatch.model.judged_node import JudgedNode
    from tpuwatch.model.judged_queued_resource import JudgedQueuedResource
    from tpuwatch.model.launches import Launch
    from tpuwatch.model.status import DaemonStatus

PROBLEM_KINDS: Final = ("node", "finding", "daemon", "signal", "queued_resource")
FINDING_SECONDS: Final = 86_400.0  # older events are in no finding, present or past, unless the configuration has more
_SLACK_SECONDS: Final = 5.0  # a process's own clock, and what it writes while it ends


@dataclass(frozen=True, slots=True)
class PastFinding:
    """A finding that is over, and why, as a sentence."""

    finding: Finding
    why: str


@dataclass(frozen=True, slots=True)
class BlindSpot:
    """A signal that gives no answer, so that it is not known how nodes are: one problem, however many they are."""

    signal: Signal
    problem: Problem
    detail: str  # a sentence, with what to do
    last_known: int = 0  # nodes that keep their last known verdict for it
    unknown: int = 0  # nodes that are unknown for it

    @property
    def sentence(self) -> str:
        """What does not answer, why, and what follows for the nodes."""
        stay = f"{self.last_known} {'nodes keep their' if self.last_known > 1 else 'node keeps its'} last known verdict"
        unknown = f"{self.unknown} {'are' if self.unknown > 1 else 'is'} unknown"
        follows = ", ".join([stay] * (self.last_known > 0) + [unknown] * (self.unknown > 0))
        return f"{self.signal.value}: {self.detail}{f' For this {follows}.' if follows else ''}"


@dataclass(frozen=True, slots=True)
class Problems:
    """What is wrong now, and apart from it what was."""

    nodes: tuple[JudgedNode, ...]  # the bad ones, the worst first; own and others alike
    findings: tuple[Finding, ...]
    daemon: tuple[str, ...]  # why the daemon is not ready, a sentence each
    restarts: tuple[str, ...]  # what keeps it from restarting, a few words each: it is ready for all else
    past: tuple[PastFinding, ...]
    watched: int  # nodes
    unknown: tuple[JudgedNode, ...]  # nodes of which it is not known how they are: no problem, and not well
    blind_spots: tuple[BlindSpot, ...] = ()  # why that is so of nodes, or why their verdict is the last known one
    queued_resources: tuple[JudgedQueuedResource, ...] = ()  # those that have a problem
    judged: bool = True  # False: signals are read, and no node has a verdict yet, as after a start
    silent: tuple[str, ...] = ()  # workers that are silent in nodes that are not bad, a few words for each node

    @property
    def counts(self) -> dict[str, int]:
        """How many there are of each of PROBLEM_KINDS."""
        own = len(self.daemon) + len(self.restarts)
        numbers = (len(self.nodes), len(self.findings), own, len(self.blind_spots), len(self.queued_resources))
        return dict(zip(PROBLEM_KINDS, numbers, strict=True))

    @property
    def total(self) -> int:
        """How many there are; 0 when nothing is known to be wrong."""
        return sum(self.counts.values())

    @property
    def headline(self) -> str:
        """What is wrong, in one line."""
        if not self.total and not self.judged:
            return "No node is judged yet"
        if not self.total:
            doubts = [part for part in (self._unknown(), *self.silent) if part]
            return f"Nothing is known to be wrong: {', '.join(doubts)}" if doubts else "Nothing is wrong"
        blind = [f"the signal {one.signal.value} fails ({one.problem.value})" for one in self.blind_spots]
        found = (self._nodes(), *blind, self._findings(), self._queued_resources(), self._daemon(), *self.restarts)
        parts = [part for part in found if part]
        return f"{self.total} problem{'s' * (self.total > 1)}: {', '.join(parts)}"

    def _nodes(self) -> str:
        if len(self.nodes) == 1:
            judgement = self.nodes[0].judgement
            words = verdict_words(judgement.verdict, None, last_known=judgement.is_last_known)
            return f"{_name(self.nodes[0])} is {words}"
        if not self.nodes:
            return ""
        last_known = sum(node.judgement.is_last_known for node in self.nodes)
        words = (
            ""
            if not last_known
            else " (last known)"
            if last_known == len(self.nodes)
            else f" ({last_known} last known)"
        )
        return f"{len(self.nodes)} of {self.watched} nodes are bad{words}"

    def _findings(self) -> str:
        if len(self.findings) == 1:
            return self.findings[0].cause.value
        return f"{len(self.findings)} findings" if self.findings else ""

    def _queued_resources(self) -> str:
        if len(self.queued_resources) == 1:
            one = self.queued_resources[0]
            return f"queued resource {one.queued.label} is {one.problem.value if one.problem else one.queued.state}"
        return f"{len(self.queued_resources)} queued resources have problems" if self.queued_resources else ""

    def _daemon(self) -> str:
        if len(self.daemon) > 1:
            return f"tpuwatch is not ready for {len(self.daemon)} reasons"
        return "tpuwatch is not ready" if self.daemon else ""

    def _unknown(self) -> str:
        if len(self.unknown) == 1:
            return f"{_name(self.unknown[0])} is unknown"
        return f"{len(self.unknown)} of {self.watched} nodes are unknown" if self.unknown else ""


def present_problems(
    status: DaemonStatus, findings: Iterable[Finding], nodes: Sequence[JudgedNode], launches: Sequence[Launch]
) -> Problems:
    """What is wrong with what this daemon watches. `launches`: those that findings may be about, and later ones."""
    watched = list(nodes)
    if status.node is not None and not any(node.own for node in watched):
        watched.insert(0, status.node)
    present: list[Finding] = []
    past: list[PastFinding] = []
    for finding in findings:
        why = _why_over(finding, status, launches)
        if why:
            past.append(PastFinding(finding, why))
        else:
            present.append(finding)
    return Problems(
        nodes=tuple(worst_first(node for node in watched if is_bad(node.judgement.verdict))),
        findings=tuple(present),
        daemon=tuple(status.not_ready()),
        restarts=status.restarts.failures if status.restarts is not None else (),
        past=tuple(past),
        watched=len(watched),
        unknown=tuple(node for node in watched if node.judgement.verdict is Verdict.UNKNOWN),
        blind_spots=_blind_spots(status, watched),
        queued_resources=tuple(one for one in status.queued_resources if one.problem is not None),
        silent=tuple(_silent_workers(watched)),
        judged=bool(watched) or all(one.problem is Problem.OFF for one in status.signals),
    )


def _silent_workers(nodes: Iterable[JudgedNode]) -> Iterator[str]:
    for node in nodes:
        silent = node.slice.those(PeerState.SILENT) if node.slice is not None else ()
        if silent and not is_bad(node.judgement.verdict):
            which = f"worker {silent[0].number}" if len(silent) == 1 else f"{len(silent)} workers"
            yield f"{which} of {_name(node)} {'is' if len(silent) == 1 else 'are'} silent"


def _blind_spots(status: DaemonStatus, nodes: Iterable[JudgedNode]) -> tuple[BlindSpot, ...]:
    """The signals that keep tpuwatch from seeing nodes, by why they fail."""
    found: dict[tuple[Signal, Problem], BlindSpot] = {}
    if status.watches_others:  # before its first answer nothing is known of nodes that match a pattern
        for one in status.signals:
            if one.name == Signal.CLOUD.value and one.at is None and one.problem is not None and one.tried is not None:
                found[Signal.CLOUD, one.problem] = BlindSpot(Signal.CLOUD, one.problem, ended(one.detail))
    for judgement in (node.judgement for node in nodes):
        if (unseen := judgement.unseen) is not None:
            key = (unseen.signal, unseen.problem)
            spot = found.get(key) or BlindSpot(*key, unseen.detail)
            stays = judgement.is_last_known
            found[key] = replace(spot, last_known=spot.last_known + stays, unknown=spot.unknown + (not stays))
    return tuple(found.values())


def _why_over(finding: Finding, status: DaemonStatus, launches: Sequence[Launch]) -> str:
    """Why nothing of the finding is wrong any more, a sentence; empty while something is."""
    if status.now - finding.last.when > status.finding_seconds:
        return f"Not seen for {format_seconds(status.finding_seconds)} (`finding_seconds` under [health])."
    if finding.last.when < _recovered_since(status):
        return "The node was restarted since, and is well."
    loop_fault = finding.cause.row.loop
    if loop_fault is not None and finding.last.rule == loop_fault.rule:
        held = any(finding.cause in loop.faults for loop in status.training if loop.is_running)
        return "" if held else "No training loop that runs has it any more."
    later: list[Launch] = []
    for event in finding.latest or (finding.last,):
        found = _did_well_later(event, launches, status.now)
        if found is None:
            return ""
        later.append(found)
    newest = max(later, key=lambda launch: launch.started)
    return f"A later launch{f' of {newest.workload}' if newest.workload else ''} (process {newest.pid}) does well."


def _recovered_since(status: DaemonStatus) -> float:
    """When the own node was last restarted, if it is well now; else the beginning of time."""
    node = status.node
    if node is None or node.judgement.verdict not in WELL:
        return float("-inf")
    done = [status.host.booted] if status.host is not None and status.host.booted is not None else []
    for record in status.restarts.records if status.restarts else ():
        if (record.target.project, record.target.zone, record.target.node) == (node.project, node.zone, node.node):
            done += [record.entered] if record.phase is Phase.DONE else []
            done += [attempt.ended for attempt in record.history if attempt.phase is Phase.DONE]
    return max(done, default=float("-inf"))


def _did_well_later(event: Event, launches: Sequence[Launch], now: float) -> Launch | None:
    """A launch of the same workload that began after the event, and has come further without a fault."""
    failed = _launch_of(event, launches)
    if failed is None and not event.workload:
        return None
    workload, lasted = (event.workload, ""), math.inf  # of a run that is not known to have asked for the TPU
    if failed is not None:
        workload, lasted = _workload(failed), event.when - failed.started
    for launch in launches:
        if launch.started <= event.when or _workload(launch) != workload or launch.outcome not in CAME_UP:
            continue
        further = launch.exit_status == 0 or (launch.ended or now) - launch.started > lasted
        if further and not launch.failed_after_start:
            return launch
    return None


def _launch_of(event: Event, launches: Sequence[Launch]) -> Launch | None:
    """The launch that the event is of: by its process, or where that is unknown by the fault and the time."""
    then = [
        one
        for one in launches
        if one.started - _SLACK_SECONDS <= event.when
        and (event.pid is not None or one.ended is None or event.when <= one.ended + _SLACK_SECONDS)
        and event.workload in ("", one.workload)
    ]
    if event.pid is not None:
        own = [one for one in then if one.pid == event.pid]
        return max(own, key=lambda one: one.started, default=None)
    blamed = [one for one in then if event.cause.value in one.faults or one.cause is event.cause] or then
    newest = max(blamed, key=lambda one: one.started, default=None)
    return newest if len({_workload(one) for one in blamed}) == 1 else None


def _workload(launch: Launch) -> tuple[str, str]:
    """What identifies the workload of a launch; without a name its user does."""
    return (launch.workload, "") if launch.workload else ("", launch.user)


def _name(node: JudgedNode) -> str:
    return node.node if node.own else node.label
