"""The memory that a program needs on a device: the figures of one that fits, and what a refusal says."""

from __future__ import annotations

import re
from typing import Any

_AVAILABLE = re.compile(r"exceeds available HBM \(([0-9.]+)([KMGT])\)|of ([0-9.]+)([KMGT]) hbm", re.IGNORECASE)
_NEEDED = re.compile(r"\(([0-9.]+)([KMGT])\) exceeds available HBM|Used ([0-9.]+)([KMGT]) of", re.IGNORECASE)
_SPACE = re.compile(r"memory space ([a-z]+)|\bspace ?= ?([a-z]+)|\bof [0-9.]+[KMGT]? ([a-z]+mem|hbm)\b", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def figures(stats: Any) -> dict[str, int]:
    """The compiler's own figures, in bytes of one device."""
    found = {
        "arguments_bytes": stats.argument_size_in_bytes,
        "outputs_bytes": stats.output_size_in_bytes,
        "shared_bytes": stats.alias_size_in_bytes,
        "temporaries_bytes": stats.temp_size_in_bytes,
        "code_bytes": stats.generated_code_size_in_bytes,
    }
    # Not the compiler's peak_memory_in_bytes: that counts what is moved to the chip's own memory a second time.
    found["needed_bytes"] = sum(found.values()) - 2 * found["shared_bytes"]
    return found


def is_refusal(text: str) -> bool:
    """Whether an error of the compiler says that a program has no room."""
    return "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text


def space(text: str) -> str:
    """The memory that has no room, of a refusal: "hbm", or "vmem", "smem" and the like, which are the chip's own."""
    found = _SPACE.search(text)
    return next(filter(None, found.groups()), "").lower() if found else "hbm"


def needed_bytes(text: str) -> int | None:
    """What a program needs, of a refusal; None where it does not say."""
    return _bytes(_NEEDED, text)


def available_bytes(text: str) -> int | None:
    """What programs get, of a refusal; None where it does not say."""
    return _bytes(_AVAILABLE, text)


def _bytes(pattern: re.Pattern[str], text: str) -> int | None:
    found = pattern.search(text)
    if found is None:
        return None
    number, unit = [one for one in found.groups() if one is not None]
    return int(float(number) * _UNITS[unit.upper()])
