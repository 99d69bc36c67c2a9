"""When no buffer is both large enough and fast enough: a launch that works beats a fast one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tpuwatch.tune.model import Step
from tpuwatch.tune.proposal import Proposal, keep
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from tpuwatch.tune.history import Seen
    from tpuwatch.tune.situation import Situation


def both_not(situation: Situation, now: Seen, fast: int, need: int, why: str) -> Proposal:
    """What is done about a slow launch whose buffer cannot be smaller. `why` begins the reason.

    `fast`: the largest size that comes up in time; `need`: the smallest that no failure speaks against.
    """
    limit = format_seconds(situation.bounds.init_seconds)
    wanted = situation.floors(now.threshold)[1]
    room = f", with headroom {format_size(wanted)}" if need <= fast < wanted else ""
    both = f"{format_size(need)} are needed{room}, and no more than {format_size(fast)} come up within {limit}"
    if default_may_do(situation, now):
        return replace(to_default(situation, f"{why}.", f"{both}."), fast=fast)
    conflict = f"{both}: a launch that works beats a fast one."
    return replace(keep(now, f"{why}. {conflict}", conflict=conflict), fast=fast)


def default_may_do(situation: Situation, now: Seen) -> bool:
    """Whether libtpu's own size is worth a try: it is smaller, and nobody knows how it does.

    It may do where more is needed, for what is larger stays out of it, and one launch tells.
    """
    default = situation.host.default_bytes
    return default < now.size and all(one.size != default for one in situation.said)


def to_default(situation: Situation, why: str, conflict: str) -> Proposal:
    """Leave it to libtpu."""
    default = situation.host.default_bytes
    out = f"buffers of more than {format_size(default)}" if default else "all buffers"
    way = f"With what libtpu takes by itself, {out} stay out of the region: they are slower, and need no room in it."
    return Proposal(Step.SHRINK, default, None, (why, conflict, way), conflict)
