"""When no buffer is both large enough and fast enough: a launch that works beats a fast one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tpuwatch.tune.model import Step
from tpuwatch.tune.proposal import Proposal, keep
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from tpuwatch.tune.history import Seen
    from tpuwatch.tune.situation import Situation


def both_not(situation: Situation, now: Seen, fast: int, need: int, why: str) -> Proposal:
    """What is done about a slow launch whose buffer cannot be smaller. `why` begins the reason."""
    limit = format_seconds(situation.bounds.init_seconds)
    both = f"{format_size(need)} are needed, and no more than {format_size(fast)} come up within {limit}"
    if default_may_do(situation, now):
        return to_default(situation, f"{why}.", f"{both}.")
    conflict = f"{both}: a launch that works beats a fast one."
    return keep(now, f"{why}. {conflict}", conflict=conflict)


def default_may_do(situation: Situation, now: Seen) -> bool:
    """Whether libtpu's own size is worth a try: of the buffers that lacked room, some would stay out of it."""
    default = situation.host.default_bytes
    return default < now.size and all(one.size != default for one in situation.said)


def to_default(situation: Situation, why: str, conflict: str) -> Proposal:
    """Leave it to libtpu."""
    default = situation.host.default_bytes
    out = f"buffers of more than {format_size(default)}" if default else "all buffers"
    way = f"With what libtpu takes by itself, {out} stay out of the region: they are slower, and need no room in it."
    return Proposal(Step.SHRINK, default, None, (why, conflict, way), conflict)
