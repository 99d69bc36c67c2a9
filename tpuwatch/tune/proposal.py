"""What a rule proposes, before it is held against the bounds; and the words that the rules share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_seconds, format_size
from tpuwatch.model import PAGE_BYTES, Advice, Bounds, SizeStep
from tpuwatch.tune.history import Kind

if TYPE_CHECKING:
    from tpuwatch.tune.history import LaunchSample
    from tpuwatch.tune.situation import TuneSituation


GUIDE: Final = "https://docs.cloud.google.com/tpu/docs/performance-guide"

WORTH: Final = 16  # a size that differs by less than this part of it makes no difference


@dataclass(frozen=True, slots=True)
class SizeProposal:
    """A step, and what it leads to. `size` is in bytes; 0 is no buffer. `threshold` None: the buffer's size."""

    step: SizeStep
    size: int
    threshold: int | None
    reasons: tuple[str, ...]
    conflict: str = ""
    advice: tuple[Advice, ...] = ()
    fast: int | None = None  # the largest size that comes up in time, where the reasons state another than the fit


def keep(now: LaunchSample, *reasons: str, conflict: str = "") -> SizeProposal:
    """All as the last launch had it."""
    return SizeProposal(SizeStep.KEEP, now.size, now.given, reasons, conflict)


def lacked_room(one: LaunchSample) -> str:
    """What a launch's buffer had no room for, as the beginning of a sentence."""
    if one.asked is None or one.need is None:
        return f"The launch of {one.clock} found no room in its buffer of {format_size(one.size)}"
    asked = f"The launch of {one.clock} asked for {format_size(one.asked)}"
    free = one.size + one.asked - one.need
    if 0 < free <= one.asked:
        return f"{asked} where {format_size(free)} were free, in a buffer of {format_size(one.size)}"
    return f"{asked} and found no room in its buffer of {format_size(one.size)}"


def worked(one: LaunchSample) -> str:
    """That a launch's buffer did, as part of a sentence. One that failed later has not worked."""
    if one.failed:
        return f"the launch of {one.clock}, which failed later by {one.failed}, had room in {format_size(one.size)}"
    return f"the launch of {one.clock} worked with {format_size(one.size)}"


def ran_out_of_memory(one: LaunchSample) -> str:
    """How a launch failed that the host could not bear, as the beginning of a sentence."""
    if one.kind is Kind.HOST_OOM:
        return f"The host ran out of memory in the launch of {one.clock}, which had a buffer of {format_size(one.size)}"
    return (
        f"The launch of {one.clock} did not come up ({one.cause}), the first with a buffer of {format_size(one.size)}"
    )


def took_too_long(one: LaunchSample, bounds: Bounds) -> str:
    """That a launch was slow, as the beginning of a sentence."""
    seconds = format_seconds(one.seconds or 0.0)
    limit = format_seconds(bounds.init_seconds)
    return f"The launch of {one.clock} took {seconds} to initialise with {format_size(one.size)}, more than {limit}"


def conflicting_needs(situation: TuneSituation, now: LaunchSample, fast: int, need: int, why: str) -> SizeProposal:
    """What is done about a slow launch whose buffer cannot be smaller. `why` begins the reason.

    `fast`: the largest size that comes up in time; `need`: the smallest that no failure rules out.
    """
    limit = format_seconds(situation.bounds.init_seconds)
    wanted = situation.floors(now.threshold)[1]
    room = f", with headroom {format_size(wanted)}" if need <= fast < wanted else ""
    both = f"{format_size(need)} are needed{room}, and no more than {format_size(fast)} come up within {limit}"
    if default_may_do(situation, now):
        return replace(to_default(situation, f"{why}.", f"{both}."), fast=fast)
    conflict = f"{both}: a launch that works beats a fast one."
    return replace(keep(now, f"{why}. {conflict}", conflict=conflict), fast=fast)


def default_may_do(situation: TuneSituation, now: LaunchSample) -> bool:
    """Whether libtpu's own size is worth a try: it is smaller, and untried.

    It may do where more is needed, because what is larger stays out of it, and one launch shows it.
    """
    default = situation.host.default_bytes
    return default < now.size and all(one.size != default for one in situation.informative)


def to_default(situation: TuneSituation, why: str, conflict: str) -> SizeProposal:
    """Leave it to libtpu."""
    default = situation.host.default_bytes
    out = f"buffers of more than {format_size(default)}" if default else "all buffers"
    way = f"With what libtpu takes by itself, {out} stay out of the region: they are slower, and need no room in it."
    return SizeProposal(SizeStep.SHRINK, default, None, (why, conflict, way), conflict)


_ADVICE: Final = (
    Advice("Make single transfers to the TPU smaller, or have fewer of them under way at once.", GUIDE),
    Advice("Run the program where more memory is available, or let fewer launches share the host.", GUIDE),
)


def unsatisfiable(situation: TuneSituation, failed: LaunchSample, needed: int, why: str = "") -> SizeProposal:
    """More is needed than is allowed. A threshold keeps the largest buffers out of the region, which then may do."""
    room, default = situation.room, situation.host.default_bytes
    why = why or f"{lacked_room(failed)}."
    conflict = f"{format_size(needed)} are needed, and {format_size(room.most)} are the most allowed: {room.why}."
    if not default:
        way = "Without a buffer, as libtpu does by itself here, nothing lacks room; transfers are slower."
        return SizeProposal(SizeStep.UNSATISFIABLE, 0, None, (why, conflict, way), conflict, _ADVICE)
    size = room.within(situation.bearable)
    threshold = _threshold(situation, failed, size)
    if threshold is None:
        way = "No size that is allowed would do; smaller or fewer transfers at once would, or more memory."
        return SizeProposal(SizeStep.UNSATISFIABLE, size, failed.given, (why, conflict, way), conflict, _ADVICE)
    way = (
        f"Buffers of more than {format_size(threshold)} are kept out of the region by the threshold: their transfers "
        "are slower, but they work, and the region is left to the smaller ones."
    )
    return SizeProposal(SizeStep.UNSATISFIABLE, size, threshold, (why, conflict, way), conflict, _ADVICE)


def _threshold(situation: TuneSituation, failed: LaunchSample, size: int) -> int | None:
    """Below the largest buffer that found no room, and each time at most half of what it was, so that it is soon low
    enough; None where it is unknown what was asked for.
    """
    asked = [one.asked for one in situation.failures(failed.threshold) if one.asked is not None]
    if not asked:
        return None
    most = min(max(asked) - 1, size // 2, (failed.threshold or size) // 2)
    return 1 << (most.bit_length() - 1) if most > PAGE_BYTES else None
