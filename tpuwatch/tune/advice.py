"""What is decided for the next launch, as the first step of a finding's remedy: a number in place of "raise it"."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_size
from tpuwatch.model import (
    DEFAULT_PREMAPPED_BYTES,
    DEFAULT_WORKLOAD,
    SIZE,
    Bounds,
    Cause,
    Remedy,
    SizeStep,
    TuneHost,
    workload_of,
)
from tpuwatch.tune.history import set_bytes
from tpuwatch.tune.host import generation_of
from tpuwatch.tune.policy import decide
from tpuwatch.tune.proposal import GUIDE

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tpuwatch.model import Finding, Launch, SizeDecision, TunePlan

_GENERAL: Final = f"Raise {SIZE} "  # how the step begins that a rule gives, which knows no number
_UNBOUNDED: Final = 1 << 50  # bytes of memory: how much the host of a text has is not known
_SAME: Final = 60.0  # seconds by which two accounts of the start of one process may differ


def with_plans(findings: Iterable[Finding], launches: Sequence[Launch], plans: Sequence[TunePlan]) -> list[Finding]:
    """The findings, those of a buffer that had no room with the size that is decided for their workload.

    `launches`: the newest first.
    """
    return [_with_plan(finding, launches, plans) or finding for finding in findings]


def with_sizes(
    findings: Iterable[Finding], launches: Sequence[Launch], known: Sequence[Launch], plans: Sequence[TunePlan]
) -> list[Finding]:
    """The same for the launches of a text. Those that this machine knows too get what is decided for their workload;
    others what tuning would decide by the text alone.

    `launches`: of the text, `known`: of this machine, both the newest first.
    """
    here = [one for one in known if any(_is_same(one, seen) for seen in launches)]
    return [_with_plan(finding, here, plans) or _with_size(finding, launches) for finding in findings]


def with_size(remedy: Sequence[Remedy], failed: Launch, decision: SizeDecision, how: str = "") -> tuple[Remedy, ...]:
    """The remedy with the size that is decided after a launch has failed. `how` it is set, as the end of a sentence."""
    step = _step(failed, decision, how)
    if not step:
        return tuple(remedy)
    return (Remedy(step, GUIDE), *(one for one in remedy if not one.do.startswith(_GENERAL)))


def exec_words(workload: str, command: str = "COMMAND") -> str:
    """How a launch of the workload gets what is decided. `command`: quoted for a shell, where it is known."""
    name = "" if workload == DEFAULT_WORKLOAD else f" --workload {workload}"
    return f": both are done by `tpuwatch exec{name} -- {command}`"


def _is_same(one: Launch, other: Launch) -> bool:
    return one.pid == other.pid and abs(one.started - other.started) <= _SAME


def _with_plan(finding: Finding, launches: Sequence[Launch], plans: Sequence[TunePlan]) -> Finding | None:
    """None where nothing is decided for the workload of a launch that failed."""
    failed = _failed(finding, launches)
    plan = next((one for one in plans if failed is not None and one.workload == workload_of(failed)), None)
    if failed is None or plan is None:
        return None
    return replace(finding, remedy=with_size(finding.remedy, failed, plan.decision, exec_words(plan.workload)))


def _with_size(finding: Finding, launches: Sequence[Launch]) -> Finding:
    failed = _failed(finding, launches)
    if failed is None:
        return finding
    host = TuneHost(generation_of(launches), total_bytes=_UNBOUNDED)
    decision = decide([_as_set(launch) for launch in launches], host, Bounds())
    return replace(finding, remedy=with_size(finding.remedy, failed, decision))


def _as_set(launch: Launch) -> Launch:
    """The launch with its size in its environment: a text does not show it, and what tpuwatch set has a plan."""
    if launch.premapped_bytes is None:
        return launch
    return replace(launch, environment={**launch.environment, SIZE: str(launch.premapped_bytes)})


def _failed(finding: Finding, launches: Sequence[Launch]) -> Launch | None:
    """The launch that the finding is about: that of its last event, else the newest whose buffer had no room."""
    if finding.cause is not Cause.PREMAPPED_EXHAUSTED:
        return None
    failed = [launch for launch in launches if launch.premapped_failures]
    return next((launch for launch in failed if launch.pid == finding.last.pid), next(iter(failed), None))


def _step(failed: Launch, decision: SizeDecision, how: str) -> str:
    """What to do, a sentence; "" where what is decided is no answer to the failure."""
    if decision.step is SizeStep.UNSATISFIABLE:
        return f"No {SIZE} that is allowed would do. {decision.reasons[0]}"
    size = DEFAULT_PREMAPPED_BYTES if decision.size_bytes is None else decision.size_bytes
    need = failed.premapped_need_bytes
    if size <= max(_had(failed), need or 0):
        return ""
    gets = f"Raise {SIZE} to {size} ({format_size(size)})"
    if decision.size_bytes is None:
        gets = f"Leave {SIZE} unset, which gives libtpu's own {format_size(size)}"
    needed = f", as a need of {format_size(need)} was seen" if need else ""
    return f"{gets}{needed}, and start the program again{how}."


def _had(failed: Launch) -> int:
    """The bytes of its buffer: as libtpu's log has them, else as its environment has had libtpu make it."""
    if failed.premapped_bytes is not None:
        return failed.premapped_bytes
    given = failed.environment.get(SIZE)
    if given:  # an empty one is as none
        return set_bytes(given)
    return DEFAULT_PREMAPPED_BYTES if failed.environment else 0
