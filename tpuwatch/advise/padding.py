"""What tiles cost: tensors that take more memory than they hold, and batches that fill no tile."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.advise.advice import passage
from tpuwatch.advise.subject import ASKED
from tpuwatch.core import format_size
from tpuwatch.model import Gain, ProgramAdvice
from tpuwatch.program import LANES, best_layout, without_waste

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tpuwatch.advise.subject import Placed, Subject

_EXPANSION: Final = 1.1  # less is not worth a change
_LEAST_SHARE: Final = 0.0005  # of HBM
_MOST: Final = 8  # tensors that are named
_ROWS: Final = 8  # of a tile of 32 bits
_BATCH_WITH_LANES: Final = 64  # in all, on 8 cores: 8 each, with features of 128
_BATCH_AS_LANES: Final = 1024  # in all: 128 each, with features of 8
_TILED: Final = 2  # sides
_CORES: Final = 8  # of the TPU that the guide speaks of


def padding(subject: Subject) -> Iterator[ProgramAdvice]:
    """A tensor that its tiles make larger by a tenth or more. Inputs and outputs of a model may be as they are."""
    wasted = [one for one in subject.tensors if _worth(one, subject)]
    for one in sorted(wasted, key=lambda one: -one.layout.waste * _kept(one))[:_MOST]:
        layout = one.layout
        nearest = without_waste(layout)
        shapes = " or ".join(map(str, nearest))
        better = best_layout(layout.tensor)
        turned = (
            f" Or transpose it: as {better.turned} it takes {format_size(better.padded)}."
            if better.padded < layout.padded
            else ""
        )
        waste = layout.waste * _kept(one)
        times = f", {one.count} times" if one.count > 1 else ""
        rows, lanes = _sides(one)
        yield ProgramAdvice(
            "padding",
            min(1.0, waste / subject.available),
            Gain.HBM,
            f"{layout.tensor} ({one.name}){times}: {format_size(layout.bytes)} take {format_size(layout.padded)}, "
            f"{layout.expansion:.1f} times as much",
            f"Its minor sides, {rows} and {lanes}, are filled up to whole tiles in HBM, and so are the registers that "
            "compute it.",
            (f"The nearest without waste: {shapes}." if shapes else "Join small tensors to one of a whole tile.")
            + turned,
            passage("performance", "Padding; Tensor dimensions"),
            figures={
                "shape": str(layout.tensor),
                "bytes": layout.bytes,
                "padded_bytes": layout.padded,
                "expansion": layout.expansion,
                "count": one.count,
                "nearest": [str(tensor) for tensor in nearest],
            },
        )


def batch(subject: Subject) -> Iterator[ProgramAdvice]:
    """A batch of a core that is no multiple of 8, or of 128 where the features are fewer than a tile is wide."""
    found = subject.batch
    if found is None:
        return
    narrow = _narrow(subject)
    unit = LANES if narrow else _ROWS
    if found % unit == 0 or (narrow and found % _ROWS == 0 and found < LANES):
        return
    up = -(-found // unit) * unit
    yield ProgramAdvice(
        "batch_multiple",
        1 - found / up if _batch_is_tiled(subject) else 0.0,
        Gain.TIME,
        f"a batch of {found} a core; the next multiple of {unit} is {up}",
        "The batch is one side of the tiles. The rule is "
        f"{_BATCH_WITH_LANES // _CORES} a core ({_BATCH_WITH_LANES} on {_CORES} cores) with features in multiples of "
        f"{LANES}, or {_BATCH_AS_LANES // _CORES} a core ({_BATCH_AS_LANES} on {_CORES}) with features in multiples "
        f"of {_ROWS}.",
        f"Give each core a batch of {up}, {up * subject.devices} in all on {subject.devices} "
        f"device{'' if subject.devices == 1 else 's'}.",
        passage("performance", "Batch size; Tensor dimensions"),
        figures={"batch": found, "nearest": up},
    )


def _batch_is_tiled(subject: Subject) -> bool:
    """Whether the batch is one of two sides; between others (positions, tokens) it is filled up by these."""
    return any(one.batch_side is not None and len(one.layout.tensor.sides) == _TILED for one in subject.tensors)


def _narrow(subject: Subject) -> bool:
    """Whether the inputs' features are fewer than a tile is wide."""
    sides = [one.layout.tensor.sides for one in subject.tensors if one.batch_side is not None]
    return any(len(side) > 1 and side[-1] < LANES and side[-1] % _ROWS == 0 for side in sides)


def _worth(one: Placed, subject: Subject) -> bool:
    if len(one.layout.tensor.sides) < _TILED or one.layout.expansion < _EXPANSION:
        return False
    if one.part == ASKED:
        return True
    return one.layout.waste * _kept(one) > _LEAST_SHARE * subject.available


def _kept(one: Placed) -> int:
    """How many are in HBM at once: all arguments, of what is computed at least one."""
    return 1 if one.part == "computed" else one.count


def _sides(one: Placed) -> tuple[int, int]:
    sides, order = one.layout.tensor.sides, one.layout.order
    return sides[order[-2]], sides[order[-1]]
