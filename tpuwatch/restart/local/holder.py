"""Ending the process that holds the TPU: who it is is written first, then it is asked ever more firmly.

It is looked at again right before each signal: the same process, which still holds the TPU. One that has let go of it
is left alone, such as a program that still writes its checkpoint.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tpuwatch.core import capital, clean, length, listed
from tpuwatch.model import Phase
from tpuwatch.restart.local.context import cancel, is_recent
from tpuwatch.restart.local.processes import (
    ProcessTree,
    decode_processes,
    encode_processes,
    process_report,
    process_tree,
    still_holds,
    targets,
)

if TYPE_CHECKING:
    import signal
    from collections.abc import Collection, Iterable

    from tpuwatch.host import HolderScan
    from tpuwatch.model import Holder
    from tpuwatch.restart.local.context import ActionContext
    from tpuwatch.restart.local.system import ProcessId

_LOOK_SECONDS: Final = 1.0  # between two looks at who has not ended: it may let go without that
_NAMED: Final = 8


def run_step(ctx: ActionContext) -> None:
    """One step of the record."""
    phase = ctx.record.phase
    if phase is Phase.REQUESTED:
        _begin(ctx)
    elif phase is Phase.INTENT:
        _send_signals(ctx)
    else:
        _verify(ctx)


def _begin(ctx: ActionContext) -> None:
    """Find out who is to be ended, and write it down."""
    if not is_recent(ctx):
        cancel(ctx, "It was asked for too long ago.")
        return
    system, entries = ctx.system, ctx.system.entries()
    holders = {holder.pid: holder for holder in system.held().holders}
    at_fault = targets(ctx.at_fault, entries, holders)
    found = process_tree(entries, at_fault, system.holds, system.own())
    if not found.holders:
        _no_targets(ctx, found)
        return
    seen = process_report(system, found.holders, entries, holders, ctx.must_stop)
    if ctx.must_stop():
        return
    ctx.write(
        Phase.INTENT,
        f"{_processes(found.holders, 'is', 'are')} to be ended.",
        boot_id=system.boot_id(),
        operation="",
        operations=encode_processes(found.holders),
        evidence=(*ctx.record.evidence, *seen),
    )


def _no_targets(ctx: ActionContext, found: ProcessTree) -> None:
    if found.spared:
        ctx.end(
            Phase.NEEDS_OPERATOR, f"tpuwatch does not end who holds the TPU: {listed(found.spared)}. Nothing was done."
        )
    elif ctx.at_fault:
        pids = _pids(holder.pid for holder in ctx.at_fault)
        cancel(ctx, f"Who is to be ended does not hold the TPU any more, or is another process by now ({pids}).")
    else:
        cancel(ctx, "It is not known which process is to be ended.")


def _send_signals(ctx: ActionContext) -> None:
    """One signal after another, from the one that was about to be sent."""
    processes = decode_processes(ctx.record.operations)
    if ctx.record.boot_id != ctx.system.boot_id():
        ctx.write(Phase.VERIFYING, "The machine has booted since, so that they have ended.")
        return
    if not (ctx.began_here or is_recent(ctx)) and any(still_holds(ctx.system, process) for process in processes):
        ctx.end(
            Phase.FAILED,
            f"The end of {_lower(processes)} was interrupted long ago, and is not continued: the evidence is old.",
        )
        return
    for number, seconds in _left(ctx):
        found = process_tree(ctx.system.entries(), processes, ctx.system.holds, ctx.system.own())
        if not found.holders:
            break
        processes |= set(found.holders)
        interrupted = ctx.record.stops
        ctx.write(
            Phase.INTENT,
            f"{_processes(found.holders, 'gets', 'get')} {number.name}, with {length(seconds)} to let go of the TPU.",
            operation=number.name,
            operations=encode_processes(processes),
            stops=1,
        )
        if denied := _send(ctx, found, number):
            ctx.end(Phase.NEEDS_OPERATOR, _denied(denied), stops=interrupted)
            return
        if _let_go(ctx, found.holders, seconds):
            break
        if ctx.must_stop():
            return
    ctx.write(Phase.VERIFYING)


def _left(ctx: ActionContext) -> tuple[tuple[signal.Signals, float], ...]:
    """The signals from the one that the record names; all where it names none."""
    signal_sequence = ctx.settings.signal_sequence
    names = [number.name for number, _ in signal_sequence]
    return signal_sequence[names.index(ctx.record.operation) :] if ctx.record.operation in names else signal_sequence


def _send(ctx: ActionContext, found: ProcessTree, number: signal.Signals) -> list[ProcessId]:
    """Send it to all of them. Who holds the TPU and may not be signalled, if that is all of them."""
    denied = []
    for process in (*found.holders, *found.others):
        if ctx.must_stop():  # which renews the lease, and raises where it is lost
            return []
        try:
            _send_one(ctx, process, number, holder=process in found.holders)
        except PermissionError:
            denied.append(process)
    return [process for process in found.holders if process in denied] if set(found.holders) <= set(denied) else []


def _send_one(ctx: ActionContext, process: ProcessId, number: signal.Signals, *, holder: bool) -> None:
    handle = ctx.system.open_handle(process)
    if handle is None:
        return
    try:
        if not holder or ctx.system.holds(process.pid):
            ctx.system.send(handle, number)
    finally:
        ctx.system.close_handle(handle)


def _let_go(ctx: ActionContext, processes: tuple[ProcessId, ...], seconds: float) -> bool:
    """Wait until none of them holds the TPU; whether that has come."""
    system, until = ctx.system, ctx.monotonic() + seconds
    handles = [handle for process in processes if (handle := system.open_handle(process)) is not None]
    try:
        while left := [handle for handle in handles if still_holds(system, handle.process)]:
            remaining = until - ctx.monotonic()
            if remaining <= 0 or ctx.must_stop():
                return False
            system.wait(left, min(remaining, _LOOK_SECONDS))
        return True
    finally:
        for handle in handles:
            system.close_handle(handle)


def _verify(ctx: ActionContext) -> None:
    """Whether they have let go, and who has the TPU now."""
    system, record = ctx.system, ctx.record
    processes, same_boot = decode_processes(record.operations), record.boot_id == system.boot_id()
    if still := sorted(process for process in processes if same_boot and still_holds(system, process)):
        ctx.end(Phase.FAILED, _not_ended(ctx, still))
        return
    held = system.held()
    old = [one for one in held.holders if one.started is None or one.started < record.began]
    if old:
        ctx.end(
            Phase.FAILED,
            f"{_let_go_of(processes)}, but it is not free: {_shown(old)} held it before already.",
        )
        return
    ctx.end(Phase.DONE, f"{_let_go_of(processes)}. {_now(ctx, held)}".rstrip())


def _now(ctx: ActionContext, held: HolderScan) -> str:
    """Who has the TPU now, and what became of the lock file."""
    if held.holders:
        return f"It is in use again: by {_shown(held.holders)}."
    if held.unseen:
        return f"Whether it is free is not known. {held.unseen[0]}"
    removed, why = ctx.system.remove_lock_file()
    if removed:
        return "It is free, and libtpu's lock file, which no process held, is removed."
    return f"It is free. libtpu's lock file is left: {clean(why)}." if why else "It is free."


def _not_ended(ctx: ActionContext, still: list[ProcessId]) -> str:
    last = ctx.settings.signal_sequence[-1][0].name
    if blocked := [process for process in still if ctx.system.blocked(process)]:
        return (
            f"{_processes(blocked, 'is', 'are')} blocked in the kernel (state D), where no signal arrives, and the TPU "
            f"is still held after {last}. This ends when the driver lets go, or with a restart of the node."
        )
    return f"{_processes(still, 'still holds', 'still hold')} the TPU after {last}."


def _denied(denied: list[ProcessId]) -> str:
    pids = " ".join(str(process.pid) for process in denied[:_NAMED])
    return (
        f"tpuwatch may not signal {_lower(denied)}: install systemd/tpuwatch-act.conf, which grants it, or end it by "
        f"hand: `sudo kill {pids}`."
    )


def _let_go_of(processes: Collection[ProcessId]) -> str:
    return f"{_processes(processes, 'has', 'have')} let go of the TPU"


def _processes(processes: Collection[ProcessId], one: str, several: str) -> str:
    """The subject of a sentence with its verb, which is `one` or `several`."""
    return f"{capital(_lower(processes))} {one if len(processes) == 1 else several}"


def _lower(processes: Collection[ProcessId]) -> str:
    return f"process{'es' * (len(processes) != 1)} {_pids(process.pid for process in processes)}"


def _pids(pids: Iterable[int]) -> str:
    every = sorted(pids)
    more = [f"{len(every) - _NAMED} more"] if len(every) > _NAMED else []
    return listed([*map(str, every[:_NAMED]), *more])


def _shown(holders: Iterable[Holder]) -> str:
    return listed([f"process {one.pid} ({clean(one.command, 60)})" for one in list(holders)[:3]])
