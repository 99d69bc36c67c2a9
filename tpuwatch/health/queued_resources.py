"""What is wrong with queued resources: a pure function of the latest lists and the time."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Final

from tpuwatch.core import ended, length, listed, printable
from tpuwatch.model import JudgedQueuedResource, QueuedProblem, RemedyStep, filled_in

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import QueuedResource

_MAX_NAMES: Final = 4
_ORDER: Final = (*QueuedProblem, None)


def judge_queued_resources(
    found: Iterable[QueuedResource], now: float, wait_seconds: float
) -> tuple[JudgedQueuedResource, ...]:
    """Judge queued resources: those with a problem first, of each kind the oldest first.

    `wait_seconds`: how long one may wait; 0 is without a limit.
    """
    judged = [_judge(one, now, wait_seconds) for one in found]
    judged.sort(key=lambda one: (_ORDER.index(one.problem), one.queued.created or now, one.queued.label))
    return tuple(judged)


def _judge(one: QueuedResource, now: float, wait_seconds: float) -> JudgedQueuedResource:
    age = None if one.created is None else now - one.created
    if one.ended:
        why = f" {ended(one.detail)}" if one.detail else ""
        text = f"It is {one.state}: it makes no nodes any more, and counts against the quota until you delete it.{why}"
        return _with(one, QueuedProblem.ENDED, text, RemedyStep.DESCRIBE_QUEUED, RemedyStep.DELETE_QUEUED)
    if one.lost:
        text = f"It is ACTIVE, and the zone no longer lists {_named(one.lost)}."
        return _with(one, QueuedProblem.ORPHANED, text, RemedyStep.DESCRIBE_QUEUED, RemedyStep.LIST_NODES)
    if not one.state:
        text = f"{_named(one.nodes)} {'name' if len(one.nodes) > 1 else 'names'} it, and the zone does not list it."
        return _with(one, QueuedProblem.NOT_FOUND, text, RemedyStep.LIST_QUEUED)
    if one.waits and age is not None and 0 < wait_seconds < age:
        limit = f"longer than {length(wait_seconds)} (`request_wait_seconds` under [cloud])"
        text = f"It has waited for {length(age)}, {limit}, and is {one.state}."
        return _with(one, QueuedProblem.OVERDUE, text, RemedyStep.DESCRIBE_QUEUED, RemedyStep.OTHER_ZONE)
    return JudgedQueuedResource(one)


def _with(one: QueuedResource, problem: QueuedProblem, text: str, *steps: RemedyStep) -> JudgedQueuedResource:
    known = {"QUEUED_RESOURCE": one.name, "ZONE": one.zone, "PROJECT": one.project}
    words = {word: shlex.quote(printable(value)) for word, value in known.items() if value}
    return JudgedQueuedResource(one, problem, text, filled_in((step.value for step in steps), words))


def _named(nodes: tuple[str, ...]) -> str:
    more = len(nodes) - _MAX_NAMES
    return listed((*nodes[:_MAX_NAMES], f"{more} more") if more > 0 else nodes)
