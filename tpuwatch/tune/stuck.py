"""When no size that is allowed would do: what leaves the rest of the transfers their room."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.tune.model import PAGE_BYTES, Advice, Step
from tpuwatch.tune.proposal import GUIDE, Proposal, lacked
from tpuwatch.units import format_size

if TYPE_CHECKING:
    from tpuwatch.tune.history import Seen
    from tpuwatch.tune.situation import Situation

_ADVICE: Final = (
    Advice("Make single transfers to the TPU smaller, or have fewer of them under way at once.", GUIDE),
    Advice("Run the program where more memory is available, or let fewer launches share the host.", GUIDE),
)


def stuck(situation: Situation, failed: Seen, needed: int, why: str = "") -> Proposal:
    """More is needed than is allowed. A threshold keeps the largest buffers out of the region, which then may do."""
    room, default = situation.room, situation.host.default_bytes
    why = why or f"{lacked(failed)}."
    conflict = f"{format_size(needed)} are needed, and {format_size(room.most)} are the most allowed: {room.why}."
    if not default:
        way = "Without a buffer, as libtpu does by itself here, nothing lacks room; transfers are slower."
        return Proposal(Step.STUCK, 0, None, (why, conflict, way), conflict, _ADVICE)
    size = room.within(situation.bearable)
    threshold = _threshold(situation, failed, size)
    if threshold is None:
        way = "No size that is allowed would do; smaller or fewer transfers at once would, or more memory."
        return Proposal(Step.STUCK, size, failed.given, (why, conflict, way), conflict, _ADVICE)
    way = (
        f"Buffers of more than {format_size(threshold)} are kept out of the region by the threshold: their transfers "
        "are slower, but they work, and the region is left to the smaller ones."
    )
    return Proposal(Step.STUCK, size, threshold, (why, conflict, way), conflict, _ADVICE)


def _threshold(situation: Situation, failed: Seen, size: int) -> int | None:
    """Below the largest buffer that found no room, and each time at most half of what it was, so that it is soon low
    enough; None where nothing told what was asked for.
    """
    asked = [one.asked for one in situation.failures(failed.threshold) if one.asked is not None]
    if not asked:
        return None
    most = min(max(asked) - 1, size // 2, (failed.threshold or size) // 2)
    return 1 << (most.bit_length() - 1) if most > PAGE_BYTES else None
