"""What follows from the kind of workload: a server waits for requests, and an interactive program for its user.

So that nothing runs is no fault of either. A server's own metrics may show that it has requests and makes no progress.
Any process can serve such metrics: they are a reason to look, and prove nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.core import length
from tpuwatch.health import reason
from tpuwatch.health.facts import Cpu
from tpuwatch.health.proposal import Proposal
from tpuwatch.health.stuck_evidence import find_stuck_evidence, find_trusted_evidence
from tpuwatch.model import Action, Confidence, RemedyStep, Verdict, WorkloadKind

if TYPE_CHECKING:
    from tpuwatch.health.facts import Facts


def stalled(facts: Facts) -> Proposal | None:
    """The server has requests, and nothing has come of them for longer than chips may be idle."""
    seconds = facts.server_stalled_seconds
    if seconds is None or seconds < facts.limits.idle_seconds:
        return None
    if find_trusted_evidence(facts) is not None:
        return None  # what shows it better decides
    summary = f"The server has had requests for {length(seconds)}, and nothing has come of them."
    reasons = reason.present(
        reason.server(facts),
        reason.idle(facts) if facts.chips else None,
        reason.holders(facts) if facts.holders else None,
    )
    steps = (RemedyStep.ASK_SERVER, *((RemedyStep.END_HOLDER,) if facts.holders else ()))
    return Proposal(Verdict.JOB_STUCK, Confidence.LOW, Action.MANUAL, summary, reasons, steps, facts.program_pids)


def waiting(facts: Facts) -> Proposal | None:
    """A server or an interactive program that has held the TPU for longer than a compile, and runs nothing."""
    if facts.kind not in (WorkloadKind.SERVING, WorkloadKind.INTERACTIVE) or not (facts.holders or facts.chips):
        return None
    if facts.quiet_seconds is not None and facts.quiet_seconds < facts.limits.compile_grace_seconds:
        return None
    if facts.server_works and not facts.chips:
        summary = "The server answers requests; it serves no runtime metrics that would show more."
        reasons = reason.present(reason.server(facts), reason.holders(facts) if facts.holders else None)
        return Proposal(Verdict.HEALTHY, Confidence.LOW, Action.NONE, summary, reasons)
    # Some servers look for requests without a rest, so that their processors are always busy.
    rests = facts.cpu is Cpu.IDLE or facts.server_has_none
    if not (rests or (facts.chips and facts.cpu is Cpu.UNCLEAR)) or find_stuck_evidence(facts) is not None:
        return None
    reasons = reason.present(
        reason.idle(facts) if facts.chips else None,
        reason.server(facts) if facts.server is not None else None,
        reason.holders(facts) if facts.holders else None,
    )
    return Proposal(Verdict.IDLE, Confidence.MEDIUM, Action.NONE, _summary(facts), reasons)


def _summary(facts: Facts) -> str:
    idle = f" for {length(facts.idle_seconds)}" if facts.idle_seconds is not None else ""
    runs = f"runs nothing on the TPU{idle}" if facts.chips else "holds the TPU and does not work"
    if facts.kind is WorkloadKind.INTERACTIVE:
        return f"An interactive program {runs}: it waits for its user."
    if facts.server_has_none:
        return f"The server has no requests and {runs}."
    if facts.server_stalled_seconds is None:
        return f"The server {runs}; it waits for requests, as far as is known."
    limit, lasted = length(facts.limits.idle_seconds), length(facts.server_stalled_seconds)
    return f"The server {runs}; it has had requests for {lasted}, which counts from {limit} on."
