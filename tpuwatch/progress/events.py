"""Events for what a loop's progress shows to be wrong. Their texts are what `logs/rules/loops.toml` recognises."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.core import clean, format_time, length
from tpuwatch.model import HEARTBEATS, Cause, Event, ProgressSource, SlowdownKind

if TYPE_CHECKING:
    from tpuwatch.model import TrainingLoop
    from tpuwatch.progress.tracker import LoopFault

RULES: Final = {cause: cause.row.loop.rule for cause in Cause if cause.row.loop is not None}


def loop_event(fault: LoopFault, boot_id: str) -> Event | None:
    """The event; None for a number in a job's output that is none, as the rules of logs report that line itself."""
    loop = fault.loop
    if fault.cause is Cause.NUMERIC_FAULT and loop.source is ProgressSource.OUTPUT:
        return None
    known = f"{boot_id}\0{loop.pid}\0{loop.name}\0{loop.began!r}\0{fault.cause.value}\0{fault.at!r}"
    sentence, details = _words(fault)
    return Event(
        key=hashlib.sha256(known.encode("utf-8", "replace")).digest()[:16],
        rule=RULES[fault.cause],
        cause=fault.cause,
        observed=fault.at,
        time=fault.at,
        severity="W",
        pid=loop.pid,
        file=HEARTBEATS if loop.source is ProgressSource.HEARTBEAT else clean(loop.name, 200),
        offset=0,
        text=f"The training loop of {_who(loop)} {sentence}",
        details=details,
    )


def _who(loop: TrainingLoop) -> str:
    if loop.source is ProgressSource.OUTPUT:
        return clean(loop.name, 100)
    named = f" ({loop.name})" if loop.name else ""
    return f"process {loop.pid if loop.pid is not None else 'unknown'}{named}"


def _words(fault: LoopFault) -> tuple[str, dict[str, Any]]:
    loop = fault.loop
    seconds, usual = loop.step_seconds or 0.0, loop.usual_step_seconds or 0.0
    if fault.cause is Cause.NUMERIC_FAULT:
        return f"reports a number that is none at step {loop.step}.", {"step_count": loop.step}
    if fault.cause is Cause.STEPS_STALLED:
        still = fault.at - loop.stepped
        words = f"has made no step for {length(still)} since step {loop.step}, and its process lives."
        return words, {"step_count": loop.step, "still_seconds": still}
    if fault.cause is Cause.SLOW_STEPS:
        return _slow_words(loop, seconds, usual)
    share = _percent(loop.input_share or 0.0)
    words = (
        f"waits for its input for {share} % of its time, {_number(seconds * share / 100)} s of {_number(seconds)} s."
    )
    return words, {"input_percent": share, "step_seconds": seconds}


def _slow_words(loop: TrainingLoop, seconds: float, usual: float) -> tuple[str, dict[str, Any]]:
    slow = loop.slowdown
    if slow is None:
        return f"takes {_number(seconds)} s a step instead of {_number(usual)} s.", {}
    facts = {"slower_percent": _percent(slow.slower), "step_count": slow.step, "since": format_time(slow.since)}
    since = f"since step {slow.step} ({format_time(slow.since)})"
    if slow.kind is SlowdownKind.PAUSES:
        return f"is in pauses for {_percent(slow.slower)} % more of its time {since}.", facts
    times = {"step_seconds": usual * (1 + slow.slower), "usual_seconds": usual}
    words = f"takes {_number(times['step_seconds'])} s a step instead of {_number(usual)} s, "
    return f"{words}{_percent(slow.slower)} % slower {since}.", {**times, **facts}


def _percent(share: float) -> int:
    return round(100 * share)


def _number(seconds: float) -> str:
    return f"{seconds:.3g}"
