"""The picture of the launches on the status page: seconds of each initialisation, and its premapped buffer.

Places along the picture are percent of its width, so that it fits any screen; heights are pixels.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final, Literal

from tpuwatch.core import format_seconds, format_size
from tpuwatch.model import CAME_UP, Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpuwatch.model import Launch, Tone

MOST: Final = 40  # launches in it
_FEWEST: Final = 12  # places: the bars of few launches are not wider than those of so many
_SECONDS_TOP: Final = 14.0  # of the upper half, below the words of its scale
_SECONDS_BASE: Final = 110.0
_BUFFER_TOP: Final = 134.0
_BUFFER_BASE: Final = 170.0
_LEAST: Final = 2.0  # what is small is seen all the same
_NO_TIME: Final = 6.0  # the height of a launch that never came up
HEIGHT: Final = 188  # of the whole
_WIDTH: Final = 0.68  # of a bar in its place


@dataclass(frozen=True, slots=True)
class Bar:
    """One launch."""

    launch: Launch
    tone: Tone
    x: float
    width: float
    y: float
    height: float
    buffer_y: float
    buffer_height: float  # 0: there was none, or it is unknown


@dataclass(frozen=True, slots=True)
class GridLine:
    """A line of a scale, and what it means."""

    y: float
    words: str


@dataclass(frozen=True, slots=True)
class LaunchChart:
    """The bars, the oldest at the left."""

    bars: Sequence[Bar]
    lines: Sequence[GridLine]
    bases: Sequence[float]
    height: int = HEIGHT

    @property
    def summary(self) -> str:
        """What there is to see, for those who do not."""
        seconds = [bar.launch.init_seconds for bar in self.bars if bar.launch.init_seconds is not None]
        failed = sum(bar.tone == "bad" for bar in self.bars)
        parts = [f"{len(self.bars)} launches" if len(self.bars) != 1 else "1 launch"]
        if seconds:
            parts.append(f"initialised in {format_seconds(min(seconds))} to {format_seconds(max(seconds))}")
        parts.append(f"{failed} failed")
        return ", ".join(parts)


def launch_tone(launch: Launch) -> Tone:
    """The colour of a launch: one that came up and failed later is no good one."""
    return "bad" if launch.failed_after_start else _TONES.get(launch.outcome, "bad")


def launch_words(launch: Launch) -> str:
    """How it went: `ok`, `failed: busy`, `ok, then hbm_oom_runtime`."""
    outcome, failure = launch.outcome.value, launch.failed_after_start
    if failure:
        return f"{outcome}, then {failure}"
    return f"{outcome}: {launch.cause.value}" if launch.cause and launch.outcome not in CAME_UP else outcome


_TONES: Final[dict[Outcome, Literal["good", "warn", "plain"]]] = {
    Outcome.OK: "good",
    Outcome.SLOW: "warn",
    Outcome.STARTING: "plain",
}


def launch_chart(launches: Sequence[Launch]) -> LaunchChart | None:
    """The picture of launches that are given the newest first; None of fewer than two."""
    shown = launches[:MOST][::-1]
    if len(shown) < 2:
        return None
    seconds = [one.init_seconds for one in shown if one.init_seconds is not None and isfinite(one.init_seconds)]
    longest = max(seconds, default=0.0)
    largest = max((one.premapped_bytes or 0 for one in shown), default=0)
    lines = [GridLine(_SECONDS_TOP, format_seconds(longest))] if longest > 0 else []
    if largest > 0:
        lines.append(GridLine(_BUFFER_TOP, format_size(largest)))
    return LaunchChart(list(_bars(shown, longest, largest)), lines, (_SECONDS_BASE, _BUFFER_BASE))


def _bars(shown: Sequence[Launch], longest: float, largest: int) -> Iterator[Bar]:
    slots = max(len(shown), _FEWEST)
    slot = 100.0 / slots
    for number, launch in enumerate(shown, slots - len(shown)):
        height = _length(launch.init_seconds, longest, _SECONDS_BASE - _SECONDS_TOP) or _NO_TIME
        room = _length(launch.premapped_bytes or None, largest, _BUFFER_BASE - _BUFFER_TOP)
        yield Bar(
            launch=launch,
            tone=launch_tone(launch),
            x=slot * (number + (1 - _WIDTH) / 2),
            width=slot * _WIDTH,
            y=_SECONDS_BASE - height,
            height=height,
            buffer_y=_BUFFER_BASE - room,
            buffer_height=room,
        )


def _length(value: float | None, most: float, room: float) -> float:
    """How long the bar of a value is, where that of `most` has all the room. Values come from logs: any number."""
    if value is None:
        return 0.0
    if not 0 < value <= most:
        return _LEAST
    return max(_LEAST, room * (value / most))  # the product could be too large for a number
