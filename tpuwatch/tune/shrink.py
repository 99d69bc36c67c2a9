"""When the buffer was too large: for the host's memory, or for a start in time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_seconds, format_size
from tpuwatch.model import SizeStep
from tpuwatch.tune.fit import at, largest_within, typical
from tpuwatch.tune.history import Kind
from tpuwatch.tune.proposal import (
    WORTH,
    SizeProposal,
    conflicting_needs,
    default_may_do,
    keep,
    ran_out_of_memory,
    to_default,
    took_too_long,
    unsatisfiable,
    worked,
)
from tpuwatch.tune.situation import PLAINLY
from tpuwatch.tune.sizes import MAX_BYTES, down, up

if TYPE_CHECKING:
    from tpuwatch.model import Fit
    from tpuwatch.tune.history import LaunchSample
    from tpuwatch.tune.situation import TuneSituation

_FASTER: Final = 0.95  # of the time before: with a much smaller size, what is not below that is no faster
_SLOWER: Final = 1.25  # of the time before: with a size that is little smaller, what is not above that may be noise
_MUCH_SMALLER: Final = 0.75
_NOISE: Final = 0.05  # of the limit: so much a start may be off, where few launches show no better
_NOT_FAR: Final = 1.15  # of the line's time: what its own size has taken counts up to that
_SURE: Final = 3.0  # median distances from the line that a start may be off
_ENOUGH: Final = 2  # slow starts with libtpu's own size, or less, before a smaller one is tried without a fit


def shrink_for_memory(situation: TuneSituation, failed: LaunchSample) -> SizeProposal:
    """What is done about a launch that the host could not bear. Its size is not allowed any more (situation.room)."""
    need, bounds = situation.floor(failed.threshold), situation.bounds
    good = situation.good(need, failed.size - 1) or _larger_one(situation, failed)
    if good is not None:
        reason = f"{ran_out_of_memory(failed)}; {worked(good)}: back to that."
        return SizeProposal(SizeStep.BACK, good.size, good.given, (reason,))
    too_much = sorted(set(situation.refused))
    if need and too_much[1:] and default_may_do(situation, failed):
        both = f"{format_size(need)} are needed, and {format_size(too_much[0])} are too much for the host."
        return to_default(situation, f"{ran_out_of_memory(failed)}.", both)
    if need > failed.size - failed.size // WORTH:
        return unsatisfiable(situation, failed, need, f"{ran_out_of_memory(failed)}.")
    middle = math.isqrt(need * failed.size) if need else failed.size // 2
    size = situation.room.within(max(down(middle, bounds), up(need, bounds)))
    if size >= failed.size:
        return keep(failed, f"{ran_out_of_memory(failed)}; no smaller buffer is allowed.")
    return SizeProposal(
        SizeStep.SHRINK, size, failed.given, (f"{ran_out_of_memory(failed)}: {format_size(size)} are tried.",)
    )


def _larger_one(situation: TuneSituation, failed: LaunchSample) -> LaunchSample | None:
    """A good launch with more, after one that did not come up with less: memory cannot have been short."""
    return situation.good(failed.size + 1, MAX_BYTES) if failed.kind is Kind.NO_START else None


def shrink_for_time(situation: TuneSituation, now: LaunchSample) -> SizeProposal:
    """What is done about a launch that worked and was slow."""
    slow, fit = took_too_long(now, situation.bounds), situation.fit
    if now.waited:
        return keep(now, f"{slow}, but that is explained by something else: {now.waited}.")
    better = _was_no_slower(situation, now)
    if better is not None:
        return _back(better, f"{slow}; it was no slower with {format_size(better.size)} (launch of {better.clock})")
    if (now.size, now.seconds) not in situation.points:
        return keep(now, f"{slow}, but others with no smaller buffer were faster: the size does not explain it.")
    if _is_accident(situation, now):
        return keep(now, f"{slow}, out of all proportion to smaller ones: one launch alone is no reason for a change.")
    if (useless := _useless(situation, now)) is not None:
        return keep(now, f"{slow}, but {format_size(useless)} were no better: the size does not explain it.")
    return _by_fit(situation, now, fit, slow) if fit is not None else _by_trial(situation, now, slow)


def _by_fit(situation: TuneSituation, now: LaunchSample, fit: Fit, slow: str) -> SizeProposal:
    limit = situation.bounds.init_seconds
    expected, own = at(fit, now.size), typical(situation.points)[now.size]
    again = len(situation.times(now.size)) > 1
    expected = max(expected, own) if again or own <= _NOT_FAR * expected else expected
    sure = largest_within(fit, limit - max(_SURE * fit.spread_seconds, _NOISE * limit)) or 0
    bare, wanted = situation.floors(now.threshold)
    line = f"{format_seconds(max(0.0, fit.base_seconds))} and {fit.per_byte_seconds * (1 << 30):.2f} s for each GiB"
    if expected <= limit or not situation.is_too_slow(now.size):
        return keep(now, f"{slow}; by {fit.launches} launches it takes {format_seconds(expected)} ({line}): no rule.")
    fast = largest_within(fit, limit)
    why = f"{slow}; by {fit.launches} launches it takes {line}"
    if fast is None or fast < situation.room.least:
        why = f"{why}: the size does not explain it"
        cut = _last_cut(situation, now)
        return keep(now, f"{why}.") if cut is None else _back(cut, why)
    if sure < wanted:  # to be in time for sure is worth half of the headroom, and no more
        sure = wanted if wanted <= fast else max(sure, down(min(fast, (bare + wanted) // 2), situation.bounds))
    known = min(size for size, _ in situation.points) // 2
    target = min(max(sure, known, situation.room.least), now.size - now.size // WORTH)
    return _shrink(situation, now, max(down(target, situation.bounds), situation.room.least), fast, why)


def _by_trial(situation: TuneSituation, now: LaunchSample, slow: str) -> SizeProposal:
    """There is one size alone: a smaller one will show whether it is what makes it slow."""
    times = situation.times(now.size)
    limit, default = situation.bounds.init_seconds, situation.host.default_bytes
    if not situation.is_too_slow(now.size):
        return keep(now, f"{slow}; others with this size did not: the size does not explain it.")
    if now.size <= default and len(times) < _ENOUGH:
        return keep(now, f"{slow}; one launch alone is no reason to go below what libtpu takes by itself.")
    bare, least = situation.floors(now.threshold)[0], situation.room.least
    fast = down(int(now.size * limit / times[0]), situation.bounds)  # if all the time goes to the buffer
    if bare > fast:
        return conflicting_needs(situation, now, fast, bare, f"{slow}, as did all with this size")
    target = max(down(now.size // 2, situation.bounds), bare, least)
    return _shrink(situation, now, target, fast, f"{slow}, as did all with this size")


def _shrink(situation: TuneSituation, now: LaunchSample, target: int, fast: int, why: str) -> SizeProposal:
    """To the target, unless that is less than was needed: a launch that works beats a fast one. Below the headroom it
    may well be, so libtpu's own size comes before, and after one such try there is no other.
    """
    bare, wanted = situation.floors(now.threshold)
    gamble = default_may_do(situation, now) or any(after.kind is Kind.EXHAUSTED for _, after in situation.cuts)
    need = wanted if gamble else bare
    fast = max(target, down(fast, situation.bounds))
    if target < need and (fast < need or default_may_do(situation, now)):
        return conflicting_needs(situation, now, fast, bare, why)
    target = max(target, need)
    if now.size - target < now.size // WORTH:
        if bare and default_may_do(situation, now):
            return to_default(situation, f"{why}.", f"{format_size(bare)} are needed, and that may be what is slow.")
        floor = f", and {format_size(bare)} were needed" if bare else ""
        return keep(now, f"{why}{floor}; no smaller size is allowed that would change much.")
    return SizeProposal(SizeStep.SHRINK, target, now.given, (f"{why}: {format_size(target)} are tried.",))


def _back(better: LaunchSample, why: str) -> SizeProposal:
    return SizeProposal(SizeStep.BACK, better.size, better.given, (f"{why}: back to {format_size(better.size)}.",))


def _last_cut(situation: TuneSituation, now: LaunchSample) -> LaunchSample | None:
    """The slow launch after which the size of now was tried, to be faster."""
    if not situation.cuts:
        return None
    before, after = situation.cuts[-1]
    sought = after.size == now.size and situation.is_slow(before) and before.size <= situation.room.most
    return before if sought else None


def _was_no_slower(situation: TuneSituation, now: LaunchSample) -> LaunchSample | None:
    """The launch before this size was tried, if it took no longer."""
    before = _last_cut(situation, now)
    return before if before is not None and _is_useless(situation, before, now) else None


def _is_accident(situation: TuneSituation, now: LaunchSample) -> bool:
    """Whether it is the only one with its size, and took plainly longer than in proportion to a smaller one."""
    times = typical(situation.points)
    most = min((seconds * now.size / size for size, seconds in times.items() if 0 < size < now.size), default=math.inf)
    alone = sum(size == now.size for size, _ in situation.points) == 1
    return alone and times[now.size] > PLAINLY * most


def _useless(situation: TuneSituation, now: LaunchSample) -> int | None:
    """A smaller size that has been tried and was no faster, or no help."""
    ours = [one for one in situation.informative if one.ours]
    for before, after in situation.cuts:
        if before.size != now.size or not situation.is_slow(before):
            continue
        later = next((one for one in ours[ours.index(after) :] if one.size != after.size), None)
        returned = after.kind is not Kind.EXHAUSTED and later is not None and later.size == before.size
        if returned or _is_useless(situation, before, after):
            return after.size
    return None


def _is_useless(situation: TuneSituation, before: LaunchSample, after: LaunchSample) -> bool:
    """Whether it took no less time with the smaller size."""
    times = typical(
        [(one.size, one.seconds) for one in situation.samples if one.seconds is not None and not one.waited]
    )
    if before.size not in times or after.size not in times:
        return False
    much = after.size <= _MUCH_SMALLER * before.size
    return times[after.size] > (_FASTER if much else _SLOWER) * times[before.size]
