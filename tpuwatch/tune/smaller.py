"""When the buffer was too large: for the host's memory, or for a start in time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.tune.fit import at, largest_within, typical
from tpuwatch.tune.history import Kind
from tpuwatch.tune.model import Step
from tpuwatch.tune.proposal import Proposal, keep, ran_out, took
from tpuwatch.tune.sizes import down, up
from tpuwatch.tune.stuck import stuck
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from tpuwatch.tune.history import Seen
    from tpuwatch.tune.model import Fit
    from tpuwatch.tune.situation import Situation

_WORTH: Final = 16  # a size that is smaller by less than this part of it is no smaller
_FASTER: Final = 0.95  # of the time before: with a much smaller size, what is not below that is no faster
_SLOWER: Final = 1.25  # of the time before: with a size that is little smaller, what is not above that may be noise
_MUCH_SMALLER: Final = 0.75
_NOISE: Final = 0.05  # of the limit: so much a start may be off, where few launches tell no better
_SURE: Final = 3.0  # median distances from the line that a start may be off
_ENOUGH: Final = 2  # slow starts with libtpu's own size, or less, before a smaller one is tried without a fit


def lighter(situation: Situation, failed: Seen) -> Proposal:
    """What is done about a launch that the host could not bear. Its size is not allowed any more (situation.room)."""
    need, room = situation.floor(failed.threshold), situation.room
    good = situation.good(need, failed.size - 1)
    if good is not None:
        reason = f"{ran_out(failed)}; the launch of {good.clock} worked with {format_size(good.size)}: back to that."
        return Proposal(Step.BACK, good.size, good.threshold, (reason,))
    if need and up(need, situation.bounds) > failed.size - failed.size // _WORTH:
        return stuck(situation, failed, need, f"{ran_out(failed)}.")
    half = down(failed.size // 2, situation.bounds)
    size = room.within(max(half, up(need, situation.bounds) if need else 0))
    if size >= failed.size:
        return keep(failed, f"{ran_out(failed)}; no smaller buffer is allowed.")
    return Proposal(Step.SHRINK, size, failed.threshold, (f"{ran_out(failed)}: {format_size(size)} are tried.",))


def smaller(situation: Situation, now: Seen) -> Proposal:
    """What is done about a launch that worked and was slow."""
    slow, fit = took(now, situation.bounds), situation.fit
    if now.waited:
        return keep(now, f"{slow}, but that is explained by something else: {now.waited}.")
    better = _was_no_slower(situation, now)
    if better is not None:
        text = f"{slow}; it was no slower with {format_size(better.size)} (launch of {better.clock}): back to that."
        return Proposal(Step.BACK, better.size, better.threshold, (text,))
    useless = _useless(situation, now)
    if useless is not None:
        return keep(now, f"{slow}, but {format_size(useless)} were no faster: the size does not explain it.")
    return _by_fit(situation, now, fit, slow) if fit is not None else _by_trial(situation, now, slow)


def _by_fit(situation: Situation, now: Seen, fit: Fit, slow: str) -> Proposal:
    limit = situation.bounds.init_seconds
    told = at(fit, now.size)
    line = f"{format_seconds(max(0.0, fit.base_seconds))} and {fit.per_byte_seconds * (1 << 30):.2f} s for each GiB"
    if told <= limit + fit.spread_seconds:
        return keep(now, f"{slow}; by {fit.launches} launches it takes {format_seconds(told)} ({line}): no rule.")
    fast = largest_within(fit, limit)
    if fast is None or fast < situation.room.least:
        return keep(now, f"{slow}, but the size does not explain it: by {fit.launches} launches it takes {line}.")
    sure = largest_within(fit, limit - max(_SURE * fit.spread_seconds, _NOISE * limit)) or 0
    known = down(min(size for size, _ in situation.points) // 2, situation.bounds)
    target = min(max(sure, known, situation.room.least), now.size - now.size // _WORTH)
    return _shrink(
        situation, now, down(target, situation.bounds), f"{slow}; by {fit.launches} launches it takes {line}"
    )


def _by_trial(situation: Situation, now: Seen, slow: str) -> Proposal:
    """There is one size alone: whether it is what makes it slow, a smaller one will tell."""
    times = [seconds for size, seconds in situation.points if size == now.size]
    limit, default = situation.bounds.init_seconds, situation.host.default_bytes
    if min(times) <= limit:
        return keep(now, f"{slow}; others with this size did not: the size does not explain it.")
    if now.size <= default and len(times) < _ENOUGH:
        return keep(now, f"{slow}; one launch alone is no reason to go below what libtpu takes by itself.")
    target = down(now.size // 2, situation.bounds)
    floor = up(situation.floor(now.threshold), situation.bounds) if situation.floor(now.threshold) else 0
    return _shrink(situation, now, max(target, floor, situation.room.least), f"{slow}, as did all with this size")


def _shrink(situation: Situation, now: Seen, target: int, why: str) -> Proposal:
    """To the target, unless that is less than was needed: a launch that works beats a fast one."""
    need, bounds = situation.floor(now.threshold), situation.bounds
    if situation.cut_too_far:
        need = up(int(need * (1 + bounds.headroom)), bounds)
    if target < need:
        return _conflict(situation, now, target, need, why)
    if now.size - target < now.size // _WORTH:
        return keep(now, f"{why}; no smaller size is allowed that would change it.")
    return Proposal(Step.SHRINK, target, now.threshold, (f"{why}: {format_size(target)} are tried.",))


def _conflict(situation: Situation, now: Seen, target: int, need: int, why: str) -> Proposal:
    limit = format_seconds(situation.bounds.init_seconds)
    both = f"{format_size(need)} are needed, and no more than {format_size(target)} come up within {limit}"
    if not situation.host.default_bytes:
        way = "without a buffer, as libtpu does by itself here, nothing lacks room; transfers are slower."
        return Proposal(Step.SHRINK, 0, None, (f"{why}.", f"{both}: {way}"), f"{both}.")
    conflict = f"{both}: a launch that works beats a fast one."
    return keep(now, f"{why}. {conflict}", conflict=conflict)


def _was_no_slower(situation: Situation, now: Seen) -> Seen | None:
    """The launch before this size was tried, if it had a larger one that took no longer."""
    ours = [one for one in situation.said if one.ours]
    before = next((one for one in reversed(ours) if one.size != now.size), None)
    if before is None or before.kind is not Kind.WORKED or not now.size < before.size <= situation.room.most:
        return None
    return before if _is_useless(situation, now.size, before.size) else None


def _useless(situation: Situation, now: Seen) -> int | None:
    """A smaller size that has been tried and was no faster."""
    sizes = {size for size, _ in situation.points if size < now.size}
    return next((size for size in sorted(sizes) if _is_useless(situation, size, now.size)), None)


def _is_useless(situation: Situation, small: int, large: int) -> bool:
    times = typical(situation.points)
    if small not in times or large not in times:
        return False
    return times[small] > (_FASTER if small <= _MUCH_SMALLER * large else _SLOWER) * times[large]
