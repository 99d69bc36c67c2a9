"""Medians, without what `statistics` imports: that takes longer than a command has to start."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def median(values: Iterable[float]) -> float:
    """The middle value; of an even number the mean of the two middle ones. Raises IndexError where there is none."""
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def median_low(values: Iterable[float]) -> float:
    """The middle value; of an even number the lower of the two middle ones. Raises IndexError where there is none."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]
