"""What libtpu's runtime metrics mean: its messages as numbers by chip. Pure.

The words changed between versions: the chip's number is an integer or text, alone or in a list of attributes, under
several names. What makes no sense is left out.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import Chip

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HBM_USED: Final = "tpu.runtime.hbm.memory.usage.bytes"
HBM_TOTAL: Final = "tpu.runtime.hbm.memory.total.bytes"
DUTY_CYCLE: Final = "tpu.runtime.tensorcore.dutycycle.percent"
IDLE: Final = "tpu.runtime.tensorcore.idle_duration.seconds"
HLO_QUEUE: Final = "hlo.queue.size.gauge"
METRICS: Final = (HBM_USED, HBM_TOTAL, DUTY_CYCLE, IDLE, HLO_QUEUE)

MAX_CHIPS: Final = 64  # of one process
_MAX_ORDINAL: Final = 1 << 16
_MAX_ENTRIES: Final = 1024  # of one metric
_MAX_VALUE: Final = float(1 << 53)  # what a double holds exactly
_DEVICE_KEYS: Final = ("device_ordinal", "device-id", "device_id", "chip_id", "chip")

Readings = dict[int, float]  # by the chip's number


def readings(metric: Any) -> Readings:
    """The numbers of a TPUMetric by chip: finite and not negative. The first of a chip counts."""
    found: Readings = {}
    for position, entry in enumerate(metric.metrics[:_MAX_ENTRIES]):
        value, ordinal = _number(entry), _ordinal(entry, position)
        if value is not None and ordinal is not None:
            found.setdefault(ordinal, value)
    return found


def total(metric: Any) -> int | None:
    """The sum over all TensorCores; None where no entry of one makes sense. What waits for a SparseCore is left out."""
    entries = filter(_is_tensorcore, metric.metrics[:_MAX_ENTRIES])
    values = [value for entry in entries if (value := _number(entry)) is not None]
    return int(sum(values)) if values else None


def chips(by_metric: Mapping[str, Readings], place: int, taken: Iterable[str] = ()) -> tuple[Chip, ...]:
    """The chips of the process on the port at `place`, counted from 0. No id is one of those `taken`.

    Every process may number its chips from 0. Then they get the numbers that they would have if the processes before it
    had as many, so that an id stays with its chip whichever of the others happen to be silent.
    """
    ordinals = sorted({ordinal for numbers in by_metric.values() for ordinal in numbers})[:MAX_CHIPS]
    used = {int(identity) for identity in taken}
    shift = place * len(ordinals) if ordinals and ordinals[0] < place * len(ordinals) else 0
    if used & {ordinal + shift for ordinal in ordinals}:
        shift = max(used) + 1
    return tuple(
        Chip(
            id=str(ordinal + shift),
            hbm_used_bytes=_whole(by_metric.get(HBM_USED, {}).get(ordinal)),
            hbm_total_bytes=_whole(by_metric.get(HBM_TOTAL, {}).get(ordinal)),
            duty_cycle=_ratio(by_metric.get(DUTY_CYCLE, {}).get(ordinal)),
            idle_seconds=by_metric.get(IDLE, {}).get(ordinal),
        )
        for ordinal in ordinals
    )


def _number(entry: Any) -> float | None:
    kind = entry.WhichOneof("measure")
    if kind not in ("gauge", "counter"):
        return None
    measure = getattr(entry, kind)
    field = measure.WhichOneof("value")
    if field not in ("as_double", "as_int"):
        return None
    value: float = getattr(measure, field)
    return value if math.isfinite(value) and 0 <= value <= _MAX_VALUE else None


def _is_tensorcore(entry: Any) -> bool:
    """Whether an entry is of a TensorCore, as one is that names no type of core."""
    if not entry.HasField("attribute") or entry.attribute.value.WhichOneof("attr") != "kvlist_attr":
        return True
    pairs = entry.attribute.value.kvlist_attr.attributes[:_MAX_ENTRIES]
    kinds = [pair.value.string_attr.lower() for pair in pairs if pair.key == "core_type"]
    return all(kind in ("", "tc") or "tensor" in kind for kind in kinds)


def _ordinal(entry: Any, position: int) -> int | None:
    """The chip that an entry is of; its position where nothing identifies it."""
    if not entry.HasField("attribute"):
        return position
    value = entry.attribute.value
    if value.WhichOneof("attr") != "kvlist_attr":
        return _device(value)
    pairs = {pair.key: pair.value for pair in value.kvlist_attr.attributes[:_MAX_ENTRIES]}
    named = next((pairs[key] for key in _DEVICE_KEYS if key in pairs), None)
    if named is not None:
        return _device(named)
    return next((found for found in map(_device, pairs.values()) if found is not None), None)


def _device(value: Any) -> int | None:
    kind = value.WhichOneof("attr")
    if kind == "string_attr":
        text = value.string_attr
        number = int(text) if text.isascii() and text.isdecimal() and len(text) < 8 else -1
    else:
        number = value.int_attr if kind == "int_attr" else -1
    return number if 0 <= number < _MAX_ORDINAL else None


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _ratio(percent: float | None) -> float | None:
    if percent is None or percent > 101:  # a little more than all comes from rounding
        return None
    return min(1.0, percent / 100)
