"""How initialisation time depends on the buffer's size: a line through noisy starts, a few of them far off.

The slope is the median of those between sizes (Theil and Sen), so that some starts may be wrong by any amount. A start
only ever takes longer than it should, hence of an even number at one size the lower middle one counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import median, median_low
from tpuwatch.model import Fit
from tpuwatch.tune.sizes import MAX_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Point = tuple[int, float]  # a launch: bytes, seconds

_APART: Final = 1.2  # sizes that are nearer to each other show noise and no slope
_FAR: Final = 5.0  # median distances from the line: more is no noise
_MIN_FAR: Final = 0.15  # of the line: less is noise, however close the others are


def fit_line(points: Iterable[Point], left_out: int = 0) -> Fit | None:
    """The line through the launches' sizes and seconds; None where there are no two sizes to derive a slope from.

    `left_out`: launches that the caller has left out already. Slow starts far from the line are left out too.
    """
    given = sorted(points)
    line = _line(given)
    if line is None:
        return None
    near = [point for point in given if not _is_far(point, line, _spread(given, line))]
    better = _line(near)
    if better is None:
        near, better = given, line
    base, slope = better
    return Fit(base, slope, len(near), left_out + len(given) - len(near), _spread(near, better))


def at(fit: Fit, size: int) -> float:
    """Seconds of an initialisation with a buffer of `size` bytes, by the fit."""
    return fit.base_seconds + fit.per_byte_seconds * size


def largest_within(fit: Fit, seconds: float) -> int | None:
    """The largest size that comes up in time, by the fit: 0 where none does; None where the size does not matter."""
    if fit.per_byte_seconds * MAX_BYTES <= max(0.0, seconds - fit.base_seconds):
        return None
    return max(0, int((seconds - fit.base_seconds) / fit.per_byte_seconds))


def typical(points: Iterable[Point]) -> dict[int, float]:
    """The seconds that each size takes."""
    found: dict[int, list[float]] = {}
    for size, seconds in points:
        found.setdefault(size, []).append(seconds)
    return {size: median_low(found[size]) for size in sorted(found)}


def _line(points: Sequence[Point]) -> tuple[float, float] | None:
    """Base and slope."""
    sizes = list(typical(points).items())
    slopes = [
        (much - little) / (large - small)
        for number, (small, little) in enumerate(sizes)
        for large, much in sizes[number + 1 :]
        if large >= _APART * small and large > small
    ]
    if not slopes:
        return None
    slope = median(slopes)
    return median_low([seconds - slope * size for size, seconds in points]), slope


def _spread(points: Sequence[Point], line: tuple[float, float]) -> float:
    return median([abs(seconds - line[0] - line[1] * size) for size, seconds in points])


def _is_far(point: Point, line: tuple[float, float], spread: float) -> bool:
    size, seconds = point
    expected = line[0] + line[1] * size
    return seconds - expected > max(_FAR * spread, _MIN_FAR * abs(expected))
