"""Records of `tpuwatch exec` for tests."""

from __future__ import annotations

from typing import Any

from tpuwatch.launches.exec_records import ExecRecord, RecordedFinding
from tpuwatch.model.launches import Launch, Outcome

NOW = 1_790_000_000.0
PID = 4711


def launch(**fields: Any) -> Launch:
    """A launch that needed more than it had."""
    given: dict[str, Any] = {
        "pid": PID,
        "started": NOW - 100,
        "user": "alice",
        "host": "vm",
        "chips": 4,
        "chip_kind": "TPU v5 lite",
        "premapped_bytes": 4 << 30,
        "init_seconds": 4.5,
        "outcome": Outcome.OK,
        "environment": {"TPU_LOG_DIR": "/tmp/tpu_logs"},  # noqa: S108 (where libtpu writes)
        "workload": "train",
        "faults": {"premapped_exhausted": 12.5},
        "premapped_failures": 2,
        "premapped_need_bytes": 6 << 30,
        "premapped_asked_bytes": 3 << 30,
        "ended": NOW - 10,
        "exit_status": 137,
    }
    return Launch(**{**given, **fields})


def record(*launches: Launch, **fields: Any) -> ExecRecord:
    """A run that ended a moment ago."""
    given: dict[str, Any] = {
        "id": "a1b2c3",
        "workload": "train",
        "started": NOW - 110,
        "ended": NOW - 10,
        "exit_status": 137,
        "launches": launches,
        "given": ("TPU_LOG_DIR",),
        "kept": (),
        "causes": ("premapped_exhausted",),
    }
    return ExecRecord(**{**given, **fields})


def finding(**fields: Any) -> RecordedFinding:
    """What `tpuwatch exec` reported of such a run."""
    given: dict[str, Any] = {
        "cause": "hbm_oom_runtime",
        "rule": "hbm-oom-runtime",
        "text": "RESOURCE_EXHAUSTED: Attempting to allocate 2.00G. That was not possible. There are 1.50G free.",
        "count": 1,
        "first": NOW - 12,
        "last": NOW - 12,
        "details": {"requested_bytes": 2 << 30, "free_bytes": 3 << 29},
    }
    return RecordedFinding(**{**given, **fields})
