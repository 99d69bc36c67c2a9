"""Asking the job for a checkpoint, by a command or by a signal to those that hold the TPU. It is asked once."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tpuwatch.core import capital, clean, listed
from tpuwatch.model import Phase
from tpuwatch.restart.local.context import cancel, is_recent
from tpuwatch.restart.local.processes import decode_processes, encode_processes, process_tree, targets

if TYPE_CHECKING:
    from tpuwatch.restart.local.context import ActionContext
    from tpuwatch.restart.local.system import ProcessId


def run_step(ctx: ActionContext) -> None:
    """One step of the record."""
    if ctx.record.phase is Phase.REQUESTED:
        _begin(ctx)
    elif not ctx.began_here:
        ctx.end(
            Phase.FAILED,
            "tpuwatch ended while it asked for a checkpoint: it is not known whether it was written, and it is not "
            "asked for again.",
        )
    elif ctx.settings.checkpoint_command:
        _run(ctx)
    else:
        _signal(ctx)


def _begin(ctx: ActionContext) -> None:
    settings = ctx.settings
    if not is_recent(ctx):
        cancel(ctx, "It was asked for too long ago.")
        return
    if not (settings.checkpoint_command or settings.checkpoint_signal):
        cancel(ctx, "Neither checkpoint_command nor checkpoint_signal is given under [restart].")
        return
    system, entries = ctx.system, ctx.system.entries()
    holders = {holder.pid: holder for holder in system.held().holders}
    at_fault = targets(ctx.at_fault, entries, holders)
    found = process_tree(entries, at_fault, system.holds, system.own()).holders
    if not settings.checkpoint_command and not found:
        cancel(ctx, "No process holds the TPU that could be asked for a checkpoint.")
        return
    ctx.write(
        Phase.INTENT,
        "The job is asked for a checkpoint.",
        boot_id=system.boot_id(),
        operation="checkpoint_command" if settings.checkpoint_command else settings.checkpoint_signal,
        operations=encode_processes(found),
    )


def _run(ctx: ActionContext) -> None:
    record, settings = ctx.record, ctx.settings
    environment = {
        "TPUWATCH_NODE": record.target.node,
        "TPUWATCH_VERDICT": record.cause,
        "TPUWATCH_PIDS": " ".join(str(process.pid) for process in sorted(decode_processes(record.operations))),
    }
    ran = ctx.system.run(settings.checkpoint_command, settings.checkpoint_seconds, environment, ctx.must_stop)
    if ran.well:
        ctx.end(Phase.DONE, "The checkpoint's command ended, and reported success.")
        return
    why = ran.fault or f"it ended with status {ran.code}"
    words = clean(ran.words[-600:])
    output = f" Its output: {words}" if words else ""
    ctx.end(Phase.FAILED, f"The checkpoint's command has failed: {why}.{output}")


def _signal(ctx: ActionContext) -> None:
    number = signal.Signals[ctx.settings.checkpoint_signal]
    asked: list[int] = []
    left: list[str] = []
    for process in sorted(decode_processes(ctx.record.operations)):
        if ctx.must_stop():
            break
        why = _ask(ctx, process, number)
        if why:
            left.append(f"process {process.pid} {why}")
        else:
            asked.append(process.pid)
    if asked:
        others = f" {capital(listed(left))}." if left else ""
        sent_to = f"Process {asked[0]} was" if len(asked) == 1 else f"Processes {listed(map(str, asked))} were"
        ctx.end(Phase.DONE, f"{sent_to} sent {number.name} for a checkpoint.{others}")
    else:
        why = listed(left) or "tpuwatch is to end"
        ctx.end(Phase.FAILED, f"No checkpoint was requested: {why}.")


def _ask(ctx: ActionContext, process: ProcessId, number: signal.Signals) -> str:
    """Send the signal; or why it was not sent, a clause."""
    handle = ctx.system.open_handle(process)
    if handle is None:
        return "has ended"
    try:
        if not ctx.system.holds(process.pid):
            return "does not hold the TPU any more"
        if not ctx.system.catches(process.pid, number):
            return f"does not handle {number.name}, which would end it"
        return "" if ctx.system.send(handle, number) else "has ended"
    except PermissionError:
        return "may not be signalled by tpuwatch without systemd/tpuwatch-act.conf"
    finally:
        ctx.system.close_handle(handle)
