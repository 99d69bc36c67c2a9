"""When the buffer had no room: back to a size that had, else to more, else past the region by the threshold."""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, Final

from tpuwatch.tune.fit import largest_within
from tpuwatch.tune.history import Kind
from tpuwatch.tune.model import Step
from tpuwatch.tune.proposal import Proposal, lacked
from tpuwatch.tune.sizes import MOST_BYTES, down, up
from tpuwatch.tune.stuck import stuck
from tpuwatch.units import format_size

if TYPE_CHECKING:
    from tpuwatch.tune.history import Seen
    from tpuwatch.tune.situation import Situation

_WORTH: Final = 16  # a size that is larger by less than this part of it is no larger
_EASY: Final = 0.8  # of the limit: what is reckoned beyond the sizes that are known is to be fast for sure


def larger(situation: Situation, failed: Seen) -> Proposal:
    """What is done about a launch whose buffer had no room."""
    good = situation.good(max(failed.size + 1, failed.need or 0), MOST_BYTES)
    if good is not None:
        return _back(failed, good)
    need, bounds = situation.need(failed.threshold), situation.bounds
    if failed.threshold is not None and failed.ours:
        return stuck(situation, failed, max(need or 0, failed.size + 1))
    size, most = failed.size, situation.room.most
    told = max(need or 0, size + 1) if need is not None else None
    wanted = up(int((told or 2 * size) * (1 + bounds.headroom if told else 1)), bounds)
    leap = up(_leap(situation, failed, wanted), bounds)
    if leap <= most:
        return Proposal(Step.GROW, leap, failed.threshold, (_grown(situation, failed, told, wanted, leap),))
    if (told is None or told <= most) and most - size >= most // _WORTH:
        return _to_the_most(situation, failed, told, wanted)
    return stuck(situation, failed, told or wanted)


def _back(failed: Seen, good: Seen) -> Proposal:
    reason = f"{lacked(failed)}; the launch of {good.clock} worked with {format_size(good.size)}: back to that."
    return Proposal(Step.BACK, good.size, good.threshold, (reason,))


def _leap(situation: Situation, failed: Seen, wanted: int) -> int:
    """From the second failure in a row on, more than was told: what is told is only what came first. Each time it
    grows by a larger factor, so that no need is far, but not beyond what is fast as long as that may do.
    """
    factor = 2 ** (_growths(situation, failed) - 1)
    if factor < 2:
        return wanted
    leap = failed.size * factor
    fast = largest_within(situation.fit, _EASY * situation.bounds.init_seconds) if situation.fit is not None else None
    return max(wanted, leap if fast is None or fast < wanted else min(leap, fast))


def _growths(situation: Situation, failed: Seen) -> int:
    """How many sizes have failed in a row, each larger than the one before."""
    run = takewhile(lambda one: not one.proved, reversed(situation.said))
    sizes = [one.size for one in run if one.kind is Kind.EXHAUSTED and one.size <= failed.size]
    return max(1, len(set(sizes)))


def _grown(situation: Situation, failed: Seen, told: int | None, wanted: int, leap: int) -> str:
    if told is None:
        much = f"{lacked(failed)}; how much was needed is not told: {format_size(leap)} are tried."
    else:
        room = f"with {100 * situation.bounds.headroom:.3g} % headroom and rounded that is {format_size(wanted)}"
        much = f"{lacked(failed)}: {format_size(told)} are needed; {room}."
    if told is not None and leap > wanted:
        times = _growths(situation, failed)
        much += f" {times} sizes in a row were too small, hence {format_size(leap)}."
    return much


def _to_the_most(situation: Situation, failed: Seen, told: int | None, wanted: int) -> Proposal:
    most = situation.room.most
    spared = down(most - most // _WORTH, situation.bounds)  # memory that is available varies a little
    size = spared if spared >= max(told or 0, failed.size + failed.size // _WORTH) else most
    limit = f"{format_size(most)} are the most that is allowed: {situation.room.why}"
    if told is None:
        text = f"{lacked(failed)}; {limit}. {format_size(size)} are tried."
    else:
        text = f"{lacked(failed)}: {format_size(told)} are needed. {format_size(wanted)} would be enough for sure, but {limit}."
    return Proposal(Step.GROW, size, failed.threshold, (text,))
