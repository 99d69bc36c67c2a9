"""The TPU that a program is compiled for, as libtpu's compiler takes it: from an accelerator type or a topology."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import prod
from typing import Any, Final

from tpuwatch.core import ConfigError
from tpuwatch.libtpu import GENERATIONS, chips_of, default_topology, generation

_TOPOLOGY: Final = re.compile(r"(?P<name>[a-z0-9]+):(?P<shape>[0-9]+(?:x[0-9]+){1,2})", re.IGNORECASE)
_COMPILER_NAMES: Final = {"7x": "tpu7x"}  # where it is not the generation's
_USUAL_HOST: Final = 4  # chips, 2 x 2, by the compiler's default
_MEGACORE: Final = "v4"  # its compiler has two devices a chip by default; jobs have one


@dataclass(frozen=True, slots=True)
class CompileTarget:
    """`topology` is the compiler's name, such as "v6e:2x2"; `options` are what `get_topology_desc` needs beside it."""

    name: str  # as the user gave it
    generation: str  # of its chips, such as "v6e"
    topology: str
    chips: int
    options: dict[str, Any]

    @property
    def slices(self) -> int:
        return int(self.options.get("num_slices", 1))


def target(name: str, slices: int = 1) -> CompileTarget:
    """The target of an accelerator type ("v6e-4", "v5p-16") or of a topology ("v6e:2x2", "v4:2x2x4").

    Raises ConfigError where neither is known, with those that are.
    """
    given = _TOPOLOGY.fullmatch(name.strip())
    chips = chips_of(name.strip())
    kind = generation(given["name"] if given else name)
    if kind not in GENERATIONS or (given is None and chips is None):
        known = ", ".join(sorted(GENERATIONS))
        raise ConfigError(
            f"{name!r} is no TPU that is known: give an accelerator type such as v6e-4 or v5p-16, or a topology such "
            f"as v6e:2x2 or v4:2x2x1, of {known}"
        )
    shape = given["shape"].lower() if given else default_topology(kind, chips or 0)
    if shape is None:
        raise ConfigError(f"{name!r}: no topology of {chips} chips is known; give it, such as {kind}:4x8")
    sides = [int(side) for side in shape.split("x")]
    count = prod(sides)
    options: dict[str, Any] = {}
    if kind == _MEGACORE:
        options["chip_config_name"] = "megacore"
    if count < _USUAL_HOST:
        options["chips_per_host_bounds"] = [*sides, *[1] * (3 - len(sides))]
    if slices > 1:
        options["num_slices"] = slices
    return CompileTarget(name.strip(), kind, f"{_COMPILER_NAMES.get(kind, kind)}:{shape}", count * slices, options)
