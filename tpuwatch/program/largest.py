"""The search for the largest batch that fits.

To refuse a program takes the compiler seconds and tells what it would need; to compile one that fits takes minutes. So
the search comes from above: two refusals give a line, the line predicts the limit, and a compilation confirms it. Where
the need is no line, as with convolutions and where the compiler recomputes values when memory is short, it bisects.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Generator

FIRST: Final = 32  # steps: what is tried first
MAX_TRIALS: Final = 40  # far more than a bisection of any number takes
MAX_CORRECTIONS: Final = 2  # from then on the need is no line


@dataclass(frozen=True, slots=True)
class Need:
    """What a batch came to. Bytes are None where the compiler does not say."""

    fits: bool
    needed_bytes: int | None
    available_bytes: int | None


def largest_batch(step: int, at_most: int) -> Generator[int, Need, int | None]:
    """Yield batches to try, all multiples of `step`; return the largest up to `at_most` that fits, or None.

    It is right where all smaller batches of one that fits do fit as well.
    """
    limit = at_most // step  # counted in steps from here on
    fits, refused = 0, limit + 1  # the largest that fits, and the smallest that does not; 0 always "fits"
    refusals: list[tuple[int, int]] = []  # steps, bytes
    corrected = 0  # how often the line pointed at what was known already
    guess = min(FIRST, limit)
    for _ in range(MAX_TRIALS):
        if refused - fits <= 1:
            break
        found = yield guess * step
        if found.fits:
            fits = guess
        else:
            refused = guess
            if found.needed_bytes is not None:
                refusals.append((guess, found.needed_bytes))
        if refused > limit:  # nothing was refused yet
            guess = min(limit, 2 * fits)
            continue
        predicted = _predicted(refusals, found.available_bytes) if corrected < MAX_CORRECTIONS else None
        if predicted is None:
            guess = (fits + refused) // 2
        elif fits < predicted < refused:
            guess = predicted
        else:  # its neighbour confirms or refutes it
            corrected += 1
            guess = fits + 1 if predicted <= fits else refused - 1
    return fits * step or None


def _predicted(refusals: list[tuple[int, int]], available: int | None) -> int | None:
    """Where the line through the two smallest refusals meets what is available; with one, the line from nothing."""
    if available is None or not refusals:
        return None
    (x, y), (x2, y2) = sorted([(0, 0), *refusals] if len(refusals) == 1 else refusals)[:2]
    slope = (y2 - y) / (x2 - x)
    return int(x + (available - y) / slope) if slope > 0 else None
