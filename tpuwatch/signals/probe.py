"""The latest probe of the TPU, as `tpuwatch probe` leaves it in the state directory.

Only root and tpuwatch's own user can write there: what any user could have left is not read.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Final

from tpuwatch.core import TuneError, clean, read_trusted, write_atomic
from tpuwatch.model import Cause, Event, Probe, ProbeVerdict

if TYPE_CHECKING:
    from pathlib import Path

PROBE_FILE: Final = "probe.json"
_MAX_BYTES: Final = 1 << 16
_SOURCE: Final = "tpuwatch probe"  # stands where a log's events have their file

_log = logging.getLogger(__name__)


def leave_probe(directory: Path, probe: Probe) -> None:
    """Leave it for the daemon whose state directory this is. Raises TuneError."""
    write_atomic(directory / PROBE_FILE, json.dumps(asdict(probe)).encode())


def read_probe(directory: Path) -> Probe | None:
    """The latest one; None if there is none, or what is there is none or not to be trusted."""
    try:
        data = read_trusted(directory / PROBE_FILE, _MAX_BYTES)
        return None if data is None else _parse(data)
    except (TuneError, ValueError, TypeError, KeyError) as error:
        _log.debug("no probe: %s", error)
        return None


def _parse(data: bytes) -> Probe:
    document = json.loads(data)
    words = {one.name: str(document[one.name]) for one in fields(Probe)}
    return Probe(
        id=clean(words["id"], 64),
        began=float(document["began"]),
        ended=float(document["ended"]),
        boot_id=clean(words["boot_id"], 64),
        verdict=ProbeVerdict(document["verdict"]),
        summary=clean(words["summary"]),
        framework=clean(words["framework"], 40),
        objection=clean(words["objection"]),
    )


def probe_event(probe: Probe) -> Event:
    """The event that stands for a probe in the store. Copies of it have the same key."""
    return Event(
        key=hashlib.sha256(f"probe\0{probe.id}".encode()).digest()[:16],
        rule=Cause.PROBE.value,
        cause=Cause.PROBE,
        observed=probe.ended,
        time=probe.ended,
        severity="I" if probe.verdict is ProbeVerdict.WORKS else "W",
        pid=None,
        file=_SOURCE,
        offset=0,
        text=f"{probe.verdict.value}: {probe.summary}",
    )
