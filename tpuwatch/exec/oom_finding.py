"""The finding of a kill for want of memory that the kernel counted, and that no text of the run shows."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tpuwatch.model import Cause

if TYPE_CHECKING:
    from tpuwatch.exec.preparation import PreparedRun
    from tpuwatch.exec.run_result import RunResult
    from tpuwatch.host import oom
    from tpuwatch.model import Finding

_OOM_RULES: Final = {"cgroup": "host-oom-cgroup", "machine": "host-oom-machine", "unknown": "host-oom-kernel"}


def with_oom_finding(prepared: PreparedRun, end: RunResult) -> RunResult:
    """The result with a kill that the kernel counted as its first finding, unless its log was in the output."""
    if end.oom is None:
        return end
    from tpuwatch.exec.found import NOTHING
    from tpuwatch.launches import RecordedFinding
    from tpuwatch.model import FindingDocument

    found = end.found or NOTHING
    told, recorded = tuple(one for one in found.findings if "killed_pid" in one.details), found.recorded
    if not told:
        finding = _oom_finding(prepared, end, end.oom)
        told = (FindingDocument.of(finding),)
        others_recorded = (one for one in recorded if one.cause != finding.cause.value)
        recorded = (RecordedFinding.of(finding), *others_recorded)
    others = (one for one in found.findings if one.cause != Cause.HOST_OOM.value)
    return replace(end, found=replace(found, findings=(*told, *others), recorded=recorded))


def _oom_finding(prepared: PreparedRun, end: RunResult, kill: oom.OomKill) -> Finding:
    """The finding of such a kill, with the rule by which the kernel's log would show it."""
    from tpuwatch.logs import load_catalogue
    from tpuwatch.model import Event, Finding

    rule = load_catalogue().rule(_OOM_RULES[kill.limit.value])
    seen = f"task_memcg={kill.own}" if kill.own else ""
    details = rule.details((f"oom_memcg={kill.cgroup}," if kill.cgroup else "").encode() + seen.encode())
    if kill.limit_bytes is not None:
        details["limit_bytes"] = kill.limit_bytes
    if end.by_signal:
        details |= {"killed_pid": end.pid, "process": Path(prepared.command[0]).name if prepared.command else ""}
    text = f"oom_kill {kill.kills}"
    event = Event(b"", rule.id, Cause.HOST_OOM, end.ended, end.ended, "", end.pid, kill.file, 0, text, details)
    remedy = rule.remedy_for(details)
    return Finding(Cause.HOST_OOM, 1, event, event, None, details, rule.describe(details), remedy)
