"""Launches for tests of tuning: what each had, and what became of it."""

from __future__ import annotations

from typing import Any

from tpuwatch.model.causes import Cause
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.tune import SET_VARIABLE, SIZE, THRESHOLD, TuneHost

MIB, GIB = 1 << 20, 1 << 30
BEGIN = 1_790_000_520.0  # 14:22 UTC
HOST = TuneHost("v5e", 160 * GIB)  # a buffer of at most 40 GiB
V4 = TuneHost("v4", 320 * GIB)


def gib(size: float) -> int:
    """GiB in bytes."""
    return int(size * GIB)


def launch(size: float | None = None, seconds: float | None = 6.0, **fields: Any) -> Launch:
    """One that came up and did its work, with `size` GiB of ours; None: what libtpu takes by itself.

    `own`: the operator set the size. `faults`: seconds from its start to each cause. Other fields as a launch has them.
    """
    own, faults = fields.pop("own", False), dict(fields.pop("faults", {}))
    given = {} if size is None else {SIZE: str(gib(size))}
    if "threshold" in fields:
        given[THRESHOLD] = str(gib(fields.pop("threshold")))
    marks = {} if own else {SET_VARIABLE: ",".join(given)}
    known: dict[str, Any] = {
        "pid": 4711,
        "started": BEGIN,
        "init_seconds": seconds,
        "outcome": Outcome.FAILED if seconds is None else Outcome.SLOW if seconds > 15 else Outcome.OK,
        "environment": {"TPU_LOG_DIR": "/logs", **given, **marks},
        "faults": {cause.value if isinstance(cause, Cause) else cause: at for cause, at in faults.items()},
    }
    return Launch(**{**known, **fields})


def lacked(size: float | None = None, need: float | None = None, asked: float | None = None, **fields: Any) -> Launch:
    """One whose buffer had no room: for `asked` GiB, where `need` were needed at once."""
    failure: dict[str, Any] = {
        "faults": {Cause.PREMAPPED_EXHAUSTED: 90.0},
        "premapped_failures": 1,
        "premapped_need_bytes": None if need is None else gib(need),
        "premapped_asked_bytes": None if asked is None else gib(asked),
    }
    return launch(size, **{**failure, **fields})


def killed(size: float | None = None, **fields: Any) -> Launch:
    """One that the host had not the memory for."""
    return launch(size, **{"faults": {Cause.HOST_OOM: 60.0}, **fields})


def failed(cause: Cause, size: float | None = None, **fields: Any) -> Launch:
    """One that did not come up."""
    return launch(size, None, **{"cause": cause, "faults": {cause: 2.0}, **fields})


def history(*launches: Launch) -> list[Launch]:
    """One after another, an hour apart."""
    for number, one in enumerate(launches):
        one.started, one.id = BEGIN + 3600.0 * number, number + 1
    return list(launches)
