"""What is added to a launch after its start: faults, failures of the premapped buffer, and what `tpuwatch exec` saw.

Tables of a launch are replaced and never changed: other threads may be reading them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tpuwatch.model import WORKLOAD_VARIABLE, Cause, Launch, Outcome, is_workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tpuwatch.launches.exec_records import ExecRecord

_MAX_BYTES: Final = 1 << 50  # a larger number in a log is no size of a buffer
_ROOT: Final = "root"  # whose word counts for the launches of all users
_OPEN: Final = frozenset({Outcome.STARTING, Outcome.SILENT, Outcome.KILLED})


def add_fault(launch: Launch, cause: Cause, when: float) -> bool:
    """Note a fault of the launch, by its first time; whether that is changed."""
    seconds = max(0.0, when - launch.started)
    if launch.faults.get(cause.value, seconds + 1) <= seconds:
        return False
    launch.faults = {**launch.faults, cause.value: seconds}
    return True


def shortage(details: Mapping[str, Any]) -> tuple[int, int] | None:
    """The sizes in a failure of the premapped buffer: the bytes that were asked for, and those that the buffer lacked.

    A buffer that has more free than was asked for has it in pieces: then it lacked all that was asked for.
    None where it has none.
    """
    asked, free = details.get("requested_bytes"), details.get("free_bytes", 0)
    if not (isinstance(asked, int) and isinstance(free, int) and 0 < asked <= _MAX_BYTES and 0 <= free <= _MAX_BYTES):
        return None
    return asked, (asked - free if asked > free else asked)


def add_need(launch: Launch, lacked: int) -> None:
    """Note what was lacking, where the buffer's size is known."""
    if launch.premapped_bytes is not None:
        launch.premapped_need_bytes = max(launch.premapped_need_bytes or 0, launch.premapped_bytes + lacked)


def set_environment(launch: Launch, environment: Mapping[str, str]) -> None:
    """Note the environment, and the workload that it names."""
    launch.environment = {**environment, **launch.environment}
    name = launch.environment.get(WORKLOAD_VARIABLE, "")
    if not launch.workload and is_workload(name):
        launch.workload = name


def is_trusted(record: ExecRecord) -> bool:
    """Whether it counts for the launches of any user: it is root's, or one's own."""
    return record.owner in ("", _ROOT)


def may_describe(record: ExecRecord, launch: Launch) -> bool:
    """Whether the user who left the record may describe the launch."""
    return is_trusted(record) or launch.user in ("", record.owner)


def merge(launch: Launch, theirs: Launch, record: ExecRecord) -> Outcome:
    """Add what `tpuwatch exec` saw of a launch, which has ended; returns the outcome as it is known now."""
    launch.workload = record.workload
    launch.exit_status = launch.exit_status if theirs.exit_status is None else theirs.exit_status
    launch.ended = launch.ended or theirs.ended or record.ended
    launch.last_heard = max(launch.last_heard or launch.started, theirs.last_heard or launch.started)
    set_environment(launch, theirs.environment)
    for cause, seconds in theirs.faults.items():
        add_fault(launch, Cause(cause), theirs.started + seconds)
    if launch.exit_status == 0 and Cause.HOST_OOM.value not in theirs.faults:  # it was not killed
        launch.faults = {cause: at for cause, at in launch.faults.items() if cause != Cause.HOST_OOM.value}
    for name in ("build", "chips", "chip_kind", "init_seconds", "boot_id"):
        setattr(launch, name, getattr(launch, name) or getattr(theirs, name))
    for name in ("premapped_bytes", "premapped_threshold_bytes", "premapped_partitions", "cause"):
        if getattr(launch, name) is None:
            setattr(launch, name, getattr(theirs, name))
    # Both may have seen the same failures.
    launch.premapped_failures = max(launch.premapped_failures, theirs.premapped_failures)
    for name in ("premapped_need_bytes", "premapped_asked_bytes"):
        setattr(launch, name, max(getattr(launch, name) or 0, getattr(theirs, name) or 0) or None)
    known = theirs.outcome if launch.outcome in _OPEN and theirs.outcome not in _OPEN else launch.outcome
    return Outcome.KILLED if known is Outcome.STARTING else known  # it has ended
