"""When the buffer had no room: back to a size that had, else to more, else past the region by the threshold."""

from __future__ import annotations

import math
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_seconds, format_size
from tpuwatch.model import THRESHOLD, SizeStep
from tpuwatch.tune.fit import largest_within
from tpuwatch.tune.history import Kind
from tpuwatch.tune.proposal import (
    WORTH,
    SizeProposal,
    default_may_do,
    lacked_room,
    to_default,
    took_too_long,
    unsatisfiable,
    worked,
)
from tpuwatch.tune.sizes import MAX_BYTES, down, up

if TYPE_CHECKING:
    from tpuwatch.tune.history import LaunchSample
    from tpuwatch.tune.situation import TuneSituation

_MANY: Final = 3  # sizes in a row that were too small: then the headroom is worth less than a start in time
_EASY: Final = 0.8  # of the limit: what is reckoned beyond the sizes that are known is to be fast for sure


def grow(situation: TuneSituation, failed: LaunchSample) -> SizeProposal:
    """What is done about a launch whose buffer had no room."""
    need, bounds = situation.need(failed.threshold), situation.bounds
    need = max(need, failed.size + 1) if need is not None else None
    wanted = up(2 * failed.size if need is None else int(need * (1 + bounds.headroom)), bounds)
    good = situation.good(max(failed.size + 1, failed.need or 0), MAX_BYTES)
    if good is not None:
        if not situation.is_plainly_slow(good):
            return _back(failed, good)
        if default_may_do(situation, failed):
            return to_default(situation, f"{lacked_room(failed)}.", f"{took_too_long(good, bounds)}.")
        between = _between(situation, failed, need or failed.size + 1, wanted, good)
        if between is None:
            return _back(failed, good)
        why = _grown(situation, failed, need, wanted, between)
        if between < wanted:
            slow = took_too_long(good, bounds)
            why = f"{lacked_room(failed)}. {slow}. Between them, {format_size(between)} should be in time."
        return SizeProposal(SizeStep.GROW, between, failed.given, (why,))
    if failed.given is not None and THRESHOLD not in bounds.overrides:
        return unsatisfiable(situation, failed, need or failed.size + 1)
    fast = situation.fast
    if need is not None and fast is not None and need + need // WORTH > fast and default_may_do(situation, failed):
        limit = format_seconds(bounds.init_seconds)
        both = f"{format_size(need)} are needed, and no more than {format_size(fast)} come up within {limit}."
        return to_default(situation, f"{lacked_room(failed)}.", both)
    leap = up(_leap(situation, failed, need or failed.size + 1, wanted), bounds)
    return _allowed(situation, failed, need, wanted, leap)


def _allowed(situation: TuneSituation, failed: LaunchSample, need: int | None, wanted: int, leap: int) -> SizeProposal:
    """To the leap, or as far as is allowed."""
    most = situation.room.most
    if situation.refused:  # near to what the host could not bear it would fail too
        most -= most // WORTH
        leap = min(leap, wanted)
    if leap <= most:
        return SizeProposal(SizeStep.GROW, leap, failed.given, (_grown(situation, failed, need, wanted, leap),))
    if (need is None or need <= most) and most - failed.size >= most // WORTH:
        return _grow_to_limit(situation, failed, need, wanted)
    return unsatisfiable(situation, failed, need or wanted)


def _back(failed: LaunchSample, good: LaunchSample) -> SizeProposal:
    reason = f"{lacked_room(failed)}; {worked(good)}: back to that."
    return SizeProposal(SizeStep.BACK, good.size, good.given, (reason,))


def _between(situation: TuneSituation, failed: LaunchSample, need: int, wanted: int, good: LaunchSample) -> int | None:
    """A size that may be both, where one had no room and a larger one is slow; None where none is worth a try.

    With less than all the headroom there is one such try, and that is the largest that is fast.
    """
    fast, most = situation.fast, good.size - good.size // WORTH
    most = down(most if fast is None else min(most, fast), situation.bounds)
    if wanted <= most:
        return min(up(_leap(situation, failed, need, wanted), situation.bounds), most)
    first = situation.informative[-2:] == (good, failed)
    return most if first and fast is not None and up(need, situation.bounds) <= most else None


def _leap(situation: TuneSituation, failed: LaunchSample, need: int, wanted: int) -> int:
    """From the second failure in a row on, more than was need: what is need is only what came first. It goes half way,
    by ratio, to the most that is allowed, and then all of it; but not beyond what is fast, as long as that may do.
    """
    growths, fit, limit = _growths(situation, failed), situation.fit, situation.bounds.init_seconds
    if growths == 1:
        return wanted
    leap = max(wanted, math.isqrt(need * situation.room.most)) if growths <= _MANY else MAX_BYTES
    fast = largest_within(fit, limit) if fit is not None else None
    easy = largest_within(fit, _EASY * limit) if fit is not None else None
    if fast is None or easy is None or fast < need + need // WORTH:
        return leap
    if growths >= _MANY and fast < wanted:
        return max(easy, need + need // WORTH)
    return min(leap, max(wanted, easy))


def _growths(situation: TuneSituation, failed: LaunchSample) -> int:
    """How many sizes have failed in a row, each larger than the one before."""
    run = takewhile(lambda one: not one.proved, reversed(situation.informative))
    sizes = [one.size for one in run if one.kind is Kind.EXHAUSTED and one.size <= failed.size]
    return max(1, len(set(sizes)))


def _grown(situation: TuneSituation, failed: LaunchSample, need: int | None, wanted: int, leap: int) -> str:
    if need is None:
        much = f"{lacked_room(failed)}; how much was needed is not known: {format_size(leap)} are tried."
    else:
        room = f"with {100 * situation.bounds.headroom:.3g} % headroom and rounded that is {format_size(wanted)}"
        much = f"{lacked_room(failed)}: {format_size(need)} are needed; {room}."
    if need is not None and leap != wanted:
        much += f" {_growths(situation, failed)} sizes in a row were too small, hence {format_size(leap)}."
    return much


def _grow_to_limit(situation: TuneSituation, failed: LaunchSample, need: int | None, wanted: int) -> SizeProposal:
    most, size = situation.room.most, situation.room.most
    if situation.refused and need is not None:
        size = min(up((need + most) // 2, situation.bounds), most)
    limit = f"{format_size(most)} are the most that is allowed: {situation.room.why}"
    needed = f"{format_size(need)} are needed, with headroom {format_size(wanted)}, but " if need is not None else ""
    text = f"{lacked_room(failed)}: {needed}{limit}. {format_size(size)} are tried."
    return SizeProposal(SizeStep.GROW, size, failed.given, (text,))
