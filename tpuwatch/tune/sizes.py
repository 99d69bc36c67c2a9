"""Sizes that a premapped buffer may have: whole pages, round for people, a power of two where Pathways wants it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import format_size
from tpuwatch.model import PAGE_BYTES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tpuwatch.model import Bounds, TuneHost

MIB: Final = 1 << 20
GIB: Final = 1 << 30
MAX_BYTES: Final = 1 << 50  # larger numbers are no sizes
_MEMORY_FLOOR: Final = 16 * MIB  # where memory is shorter than that, the buffer is not what takes it
_STEPS: Final = ((GIB, 256 * MIB), (256 * MIB, 64 * MIB), (16 * MIB, 16 * MIB))  # from a size on, its grain


def up(size: int, bounds: Bounds) -> int:
    """The next round size that is no smaller."""
    size = max(size, PAGE_BYTES)
    if bounds.power_of_two:
        return 1 << (size - 1).bit_length()
    grain = _grain(size)
    return -(-size // grain) * grain


def down(size: int, bounds: Bounds) -> int:
    """The next round size that is no larger; 0 where it is less than a page."""
    if size < PAGE_BYTES:
        return 0
    if bounds.power_of_two:
        return 1 << (size.bit_length() - 1)
    grain = _grain(size)
    return size // grain * grain


def pages_up(size: int, bounds: Bounds) -> int:
    """The size in whole pages, no smaller; a power of two where that is wanted."""
    if bounds.power_of_two:
        return up(size, bounds)
    return max(1, -(-size // PAGE_BYTES)) * PAGE_BYTES


def pages_down(size: int, bounds: Bounds) -> int:
    """The size in whole pages, no larger; a power of two where that is wanted."""
    return down(size, bounds) if bounds.power_of_two else max(0, size) // PAGE_BYTES * PAGE_BYTES


@dataclass(frozen=True, slots=True)
class Room:
    """The sizes that are allowed: from `least` to `most`, in bytes. Where memory is short, `most` comes first."""

    least: int
    most: int
    why: str  # what sets `most`, to follow "the most that … allows" or the like

    def within(self, size: int) -> int:
        """The nearest allowed size."""
        return min(max(size, self.least), self.most)


def room(host: TuneHost, bounds: Bounds, *, worked: int, refused: Iterable[int], processes: int = 1) -> Room:
    """What bounds, memory and the launches that the host could not bear allow.

    `worked`: the largest size that has worked. `refused`: sizes that were too large for the host. `processes`: how many
    will have such a buffer at once.
    """
    limits = [(pages_down(bounds.max_bytes, bounds), "the configuration's largest size")]
    size, why = _memory(host, bounds, worked, processes)
    limits.append((max(size, _floor(bounds)), why))
    limits += [(_below(size, bounds), f"less than the {format_size(size)} that failed") for size in refused]
    most, why = min(limits, key=lambda limit: limit[0])
    most = max(most, PAGE_BYTES)
    return Room(min(pages_up(bounds.min_bytes, bounds), most), most, why)


def _memory(host: TuneHost, bounds: Bounds, worked: int, processes: int) -> tuple[int, str]:
    """What the memory allows: a share of all of it, less what other launches have pinned."""
    share, total = bounds.memory_share, host.total_bytes
    if total is None:
        return max(host.default_bytes, worked), "what has worked or is libtpu's default, as the memory is not known"
    each = f", for {processes} processes together" if processes > 1 else ""
    beside = f" less the {format_size(host.taken_bytes)} of other launches' buffers" if host.taken_bytes > 0 else ""
    why = f"{100 * share:.3g} % of the host's {format_size(total)} of memory{beside}{each}"
    return down((int(share * min(total, MAX_BYTES)) - max(0, host.taken_bytes)) // processes, bounds), why


def _floor(bounds: Bounds) -> int:
    return min(_MEMORY_FLOOR, pages_up(bounds.min_bytes, bounds))


def _below(size: int, bounds: Bounds) -> int:
    return max(down(size - 1, bounds), pages_up(bounds.min_bytes, bounds))


def _grain(size: int) -> int:
    return next((grain for least, grain in _STEPS if size >= least), PAGE_BYTES)
