"""The search for the largest batch that fits.

To refuse a program takes the compiler seconds and tells what it would need; to make the code of one that fits takes
minutes. So the search comes from above: refusals give a line, the line predicts the limit, and what lies just beyond it
is tried first. What fits is waited for to its end once, when its neighbour is refused: it is the answer. Where the need
is no line, as with convolutions and where the compiler recomputes values when memory is short, it bisects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

FIRST: Final = 32  # steps: what is tried first
MAX_TRIALS: Final = 40  # far more than a bisection of any number takes
MAX_CORRECTIONS: Final = 2  # from then on the need is no line
MAX_LEAP: Final = 32  # times what fits, where nothing is refused yet


@dataclass(frozen=True, slots=True)
class Ask:
    """A batch to try. `whole`: to the end of the compilation; else it is enough to know whether its memory suffices.
    `last`: none follows."""

    batch: int | None
    whole: bool
    last: bool = False


@dataclass(frozen=True, slots=True)
class Need:
    """What a batch came to. Bytes are None where the compiler does not say; `whole`: its compilation has ended."""

    fits: bool
    needed_bytes: int | None
    available_bytes: int | None
    whole: bool = True


def largest_batch(step: int, at_most: int, *, confirm: bool = True) -> Generator[Ask, Need, int | None]:
    """Ask for batches, all multiples of `step`; return the largest up to `at_most`, a step or more, that fits, or None.

    It is right where all smaller batches of one that fits do fit as well. `confirm`: what it returns was compiled to
    its end.
    """
    limit = at_most // step  # counted in steps from here on
    refused = limit + 1  # the smallest that does not fit
    needs: dict[int, Need] = {}
    sure = 0  # compiled to its end; 0 always "fits"
    corrected = 0  # how often the line pointed at what was known already
    guess = min(FIRST, limit)
    for _ in range(MAX_TRIALS):
        whole = confirm and guess + 1 >= refused  # where it fits, it is the answer
        found = needs[guess] = yield Ask(guess * step, whole)
        if not found.fits:
            refused = guess
        elif whole or found.whole:
            sure = guess
        fits = max((steps for steps, need in needs.items() if need.fits and steps < refused), default=0)
        if refused - fits <= 1:
            if fits in (0, sure) or not confirm:
                return fits * step or None
            guess = fits
            continue
        if refused > limit:  # nothing was refused yet
            guess = min(limit, _leap(fits, needs[fits]))
            continue
        predicted = _predicted(needs, fits, refused) if corrected < MAX_CORRECTIONS else None
        if predicted is None:
            guess = (fits + refused) // 2
        elif fits <= predicted < refused - 1:
            guess = predicted + 1  # to be refused takes less time than to fit
        else:  # its neighbour confirms or refutes it
            corrected += 1
            guess = fits + 1 if predicted < fits else refused - 1
    return sure * step or None


def _leap(fits: int, need: Need) -> int:
    """Beyond what fits: twice that, or further where it leaves most of the memory free."""
    if not need.needed_bytes or not need.available_bytes:
        return 2 * fits
    return max(2 * fits, min(MAX_LEAP * fits, fits * need.available_bytes // need.needed_bytes + 1))


def _predicted(needs: dict[int, Need], fits: int, refused: int) -> int | None:
    """Where the line through the two smallest refusals meets what is available; with one refusal, the line to it from
    what fits. (The compiler saves memory only where it is short: needs that are refused have that in common.)"""
    refusals = sorted((n, need.needed_bytes) for n, need in needs.items() if not need.fits and need.needed_bytes)
    available = needs[refused].available_bytes
    if available is None or not refusals:
        return None
    if len(refusals) == 1:
        refusals.append((fits, (needs[fits].needed_bytes or 0) if fits else 0))
    (x, y), (x2, y2) = refusals[:2]
    slope = (y2 - y) / (x2 - x)
    return int(x + (available - y) / slope) if slope > 0 else None
