"""Which TPU a name means: accelerator types ("v5litepod-16"), machine types ("ct6e-standard-4t") and kinds of chips."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Generation:
    """What the chips of a generation have in common.

    Of the peaks: https://docs.cloud.google.com/tpu/docs/system-architecture-tpu-vm and the page of each generation.
    """

    hbm_gib: int  # of a chip
    numbers_per_chip: int  # how many of an accelerator type's number make a chip: of some it counts TensorCores
    peak_flops: float  # of a chip in a second, in bfloat16
    hbm_bytes_per_second: float  # of a chip
    devices_per_chip: int = 1  # as frameworks and libtpu's runtime metrics count them
    largest_host: int = 4  # chips of a host that is a slice by itself; the hosts of larger slices have 4
    matrix_side: int = 128  # of the matrix units (MXU), which are squares


GENERATIONS: Final = {
    "v2": Generation(16, 2, 46e12, 700e9, 2),
    "v3": Generation(32, 2, 123e12, 900e9, 2),
    "v4": Generation(32, 2, 275e12, 1228e9),
    "v5e": Generation(16, 1, 197e12, 819e9, largest_host=8),
    "v5p": Generation(95, 2, 459e12, 2765e9),
    "v6e": Generation(32, 1, 918e12, 1638e9, largest_host=8, matrix_side=256),
    "7x": Generation(192, 2, 2307e12, 7380e9, 2, matrix_side=256),
}
_BOXES: Final = frozenset({"v4", "v5p", "7x"})
_SMALL_BOXES: Final = ("1x1x1", "1x2x1", "2x2x1")
_HOST_CHIPS: Final = 4
_NAME: Final = re.compile(r"(?:ct|(?:TPU[ _-]?)?v?)([2-9])[ _-]?(litepod|lite|lp|l|e|p|x)?(?![a-z0-9])", re.IGNORECASE)
_TYPE: Final = re.compile(r"[a-z0-9]+-([0-9]{1,6})", re.IGNORECASE)
_EFFICIENT: Final = frozenset({"litepod", "lite", "lp", "l", "e"})
_BARE: Final = {"5": "v5p", "6": "v6e"}  # "TPU v5" is what libtpu calls a chip of v5p


def generation(name: str) -> str:
    """The generation in a type or a chip's kind: "v5e" for "v5litepod-16" and "TPU v5 lite"; empty for other text."""
    found = _NAME.match(name.strip())
    if found is None:
        return ""
    number, suffix = found[1], (found[2] or "").lower()
    if number == "7":
        return "7x"
    if number < "5" or not suffix:  # "ct4p" is a machine with v4
        return _BARE.get(number, f"v{number}")
    return f"v{number}e" if suffix in _EFFICIENT else f"v{number}{suffix}"


def chips_of(accelerator: str) -> int | None:
    """How many chips an accelerator type means; None where it is none that is known."""
    known, number = GENERATIONS.get(generation(accelerator)), _TYPE.fullmatch(accelerator)
    if known is None or number is None:
        return None
    return max(1, int(number[1]) // known.numbers_per_chip) if int(number[1]) else None


def hosts_of(accelerator: str) -> tuple[int, int] | None:
    """On how many hosts the chips of an accelerator type are, and how many each has; None where it is unknown."""
    chips = chips_of(accelerator)
    if chips is None:
        return None
    each = chips_of_host(generation(accelerator), chips)
    return -(-chips // each), each


def chips_of_host(kind: str, chips: int) -> int:
    """How many chips each host of a slice has, which has so many of a generation."""
    return chips if chips <= GENERATIONS[kind].largest_host else _HOST_CHIPS


def default_topology(kind: str, chips: int) -> str | None:
    """The arrangement in which the cloud gives so many chips of a generation: "4x4", "2x2x4"; None for other numbers.

    Slices of v4, v5p and 7x are boxes, those of the others squares or twice as long as wide. Single hosts of v2 and v3
    are 2x2, and one chip is 1x1.
    """
    if chips < 1 or chips & (chips - 1):
        return None
    doublings = chips.bit_length() - 1
    if kind not in _BOXES:
        width, length = 1 << doublings // 2, 1 << (doublings + 1) // 2
        return f"{width}x{length}"
    if doublings < len(_SMALL_BOXES):
        return _SMALL_BOXES[doublings]
    sides = [2, 2, 2]
    for step in range(doublings - 3):
        sides[2 - step % 3] *= 2
    return "x".join(str(side) for side in sorted(sides))


def devices_per_chip(name: str) -> int:
    """How many devices a chip is to frameworks and in the runtime metrics; 1 where the generation is unknown."""
    known = GENERATIONS.get(generation(name))
    return known.devices_per_chip if known else 1


def counted(devices: int, name: str) -> str:
    """So many entries of the runtime metrics in words: "4 chips", or "8 devices of 4 chips" where a chip is two."""
    chips, rest = divmod(devices, devices_per_chip(name))
    chip_text = f"{chips} chip{'' if chips == 1 else 's'}"
    if chips == devices:
        return chip_text
    return f"{devices} devices" + ("" if rest else f" of {chip_text}")
