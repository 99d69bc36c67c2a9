"""What a rule proposes, before it is held against the bounds; and the words that the rules share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.tune.history import Kind
from tpuwatch.tune.model import Advice, Bounds, Step
from tpuwatch.units import format_seconds, format_size

if TYPE_CHECKING:
    from tpuwatch.tune.history import Seen

GUIDE: Final = "https://docs.cloud.google.com/tpu/docs/performance-guide"

WORTH: Final = 16  # a size that differs by less than this part of it makes no difference


@dataclass(frozen=True, slots=True)
class Proposal:
    """A step, and what it leads to. `size` is in bytes; 0 is no buffer. `threshold` None: the buffer's size."""

    step: Step
    size: int
    threshold: int | None
    reasons: tuple[str, ...]
    conflict: str = ""
    advice: tuple[Advice, ...] = ()
    fast: int | None = None  # the largest size that comes up in time, where the reasons tell another than the fit


def keep(now: Seen, *reasons: str, conflict: str = "") -> Proposal:
    """All as the last launch had it."""
    return Proposal(Step.KEEP, now.size, now.given, reasons, conflict)


def lacked(one: Seen) -> str:
    """What a launch's buffer had no room for, as the beginning of a sentence."""
    if one.asked is None or one.need is None:
        return f"The launch of {one.clock} found no room in its buffer of {format_size(one.size)}"
    asked = f"The launch of {one.clock} asked for {format_size(one.asked)}"
    free = one.size + one.asked - one.need
    if 0 < free <= one.asked:
        return f"{asked} where {format_size(free)} were free, in a buffer of {format_size(one.size)}"
    return f"{asked} and found no room in its buffer of {format_size(one.size)}"


def ran_out(one: Seen) -> str:
    """How a launch failed that the host could not bear, as the beginning of a sentence."""
    if one.kind is Kind.HOST_OOM:
        return f"The host ran out of memory in the launch of {one.clock}, which had a buffer of {format_size(one.size)}"
    return (
        f"The launch of {one.clock} did not come up ({one.cause}), the first with a buffer of {format_size(one.size)}"
    )


def took(one: Seen, bounds: Bounds) -> str:
    """That a launch was slow, as the beginning of a sentence."""
    seconds = format_seconds(one.seconds or 0.0)
    limit = format_seconds(bounds.init_seconds)
    return f"The launch of {one.clock} took {seconds} to initialise with {format_size(one.size)}, more than {limit}"
