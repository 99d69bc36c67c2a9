"""Restarting the runtime of this machine: a systemd unit, or whatever a command does.

systemd gives each start of a unit an id. By it a restart is proven, also by who only finds its intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, length
from tpuwatch.model import Phase
from tpuwatch.restart.local.context import cancel, is_recent

if TYPE_CHECKING:
    from tpuwatch.restart.local.context import ActionContext
    from tpuwatch.restart.local.system import CommandOutcome

_SYSTEMCTL: Final = "systemctl"
_ENVIRONMENT: Final = {"LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
_SHOW_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 2.0
_BEFORE: Final = "invocation/"
_CHANGING: Final = frozenset({"activating", "deactivating", "reloading", "refreshing"})


@dataclass(frozen=True, slots=True)
class Unit:
    """The state of the unit in systemd; all "" if it is not known."""

    loaded: str = ""  # "loaded", "not-found", "masked", …
    active: str = ""  # "active", "failed", …
    invocation: str = ""  # of its latest start


def run_step(ctx: ActionContext) -> None:
    """One step of the record."""
    phase = ctx.record.phase
    if phase is Phase.REQUESTED:
        _begin(ctx)
    elif phase is Phase.INTENT and ctx.began_here:
        _restart(ctx)
    elif phase is Phase.INTENT:
        _find_out(ctx)
    else:
        _verify(ctx)


def _begin(ctx: ActionContext) -> None:
    settings = ctx.settings
    if not is_recent(ctx):
        cancel(ctx, "It was asked for too long ago.")
        return
    unit = _unit(ctx)
    if not (settings.runtime_command or settings.runtime_unit):
        cancel(ctx, "Neither runtime_unit nor runtime_command is given under [restart].")
        return
    if settings.runtime_unit and unit.loaded != "loaded":
        why = f"systemd calls it {clean(unit.loaded, 40)}" if unit.loaded else "systemd could not be asked for it"
        ctx.end(
            Phase.NEEDS_OPERATOR,
            f"The runtime's unit {settings.runtime_unit} cannot be restarted: {why}. Name the right one with "
            "runtime_unit under [restart]. Nothing was done.",
        )
        return
    ctx.write(
        Phase.INTENT,
        "The runtime is restarted.",
        boot_id=ctx.system.boot_id(),
        operation="runtime_command" if settings.runtime_command else f"restart {settings.runtime_unit}",
        operations=(f"{_BEFORE}{unit.invocation}",),
    )


def _restart(ctx: ActionContext) -> None:
    settings = ctx.settings
    argv = settings.runtime_command or (
        ctx.system.find(_SYSTEMCTL) or _SYSTEMCTL,
        "restart",
        "--no-ask-password",
        "--",
        settings.runtime_unit,
    )
    ran = ctx.system.run(argv, settings.runtime_seconds, _ENVIRONMENT, ctx.must_stop)
    if ctx.must_stop():
        return  # the next driver finds out what became of it
    if ran.well:
        ctx.write(Phase.VERIFYING, "The runtime was restarted; it is watched.", stops=1)
        return
    unit = _unit(ctx)
    if ran.code is not None and unit.active == "active" and _is_before(ctx, unit):
        ctx.end(
            Phase.NEEDS_OPERATOR,
            f"The runtime was not restarted, and runs as before: {_why(ran)} What tpuwatch needs for it is "
            "described in docs/restart.md.",
        )
        return
    ctx.write(Phase.VERIFYING, stops=1, note=f"The restart of the runtime has failed: {_why(ran)}")


def _find_out(ctx: ActionContext) -> None:
    """A driver died between this intent and its outcome."""
    unit = _unit(ctx)
    if not ctx.settings.runtime_unit:
        _unknown(ctx)
    elif unit.invocation and not _is_before(ctx, unit):
        ctx.write(Phase.VERIFYING, "The runtime was restarted; it is watched.", stops=1)
    elif _waited(ctx, 2 if unit.active in _CHANGING else 1):
        _unknown(ctx)
    else:
        ctx.report("It is not known whether the runtime was restarted; that is looked at.")
        ctx.pause(_LOOK_SECONDS)


def _unknown(ctx: ActionContext) -> None:
    ctx.end(
        Phase.FAILED,
        "tpuwatch ended while it restarted the runtime, and nothing shows that it was restarted. It is not restarted "
        "again for the same fault.",
    )


def _verify(ctx: ActionContext) -> None:
    """Whether it runs, and goes on doing so."""
    record, settings = ctx.record, ctx.settings
    if not settings.runtime_unit:
        if record.note:
            ctx.end(Phase.FAILED, record.note)
        else:
            ctx.end(Phase.DONE, "The runtime's command ended, and reported success.")
        return
    unit = _unit(ctx)
    now = ctx.time()
    if unit.active == "active" and unit.invocation and not _is_before(ctx, unit):
        _settle(ctx, unit, now)
        return
    if _waited(ctx):
        state = clean(unit.active, 40) or "not known"
        again = " (it still is the start from before)" if unit.active == "active" else ""
        ctx.end(
            Phase.FAILED,
            f"{record.note or 'The runtime was restarted.'} The state of {settings.runtime_unit} is {state}{again} "
            f"after {length(settings.runtime_seconds)}. Look: `systemctl status {settings.runtime_unit}`.",
        )
        return
    if record.well_since:
        ctx.write(Phase.VERIFYING, entered=record.entered, well_since=0.0, shown=unit.invocation)
    ctx.report(f"The state of {settings.runtime_unit} is {clean(unit.active, 40) or 'not known'}; it is waited for.")
    ctx.pause(_LOOK_SECONDS)


def _settle(ctx: ActionContext, unit: Unit, now: float) -> None:
    record, settings = ctx.record, ctx.settings
    if not record.well_since or record.shown != unit.invocation:  # it has begun, or begun again by itself
        if record.well_since and _waited(ctx):
            ctx.end(Phase.FAILED, f"{settings.runtime_unit} was restarted, and does not stay up.")
            return
        ctx.write(Phase.VERIFYING, entered=record.entered, well_since=now, shown=unit.invocation)
        return
    left = settings.settle_seconds - max(0.0, now - record.well_since)
    if left <= 0:
        ago = length(settings.settle_seconds)
        ctx.end(Phase.DONE, f"{settings.runtime_unit} was restarted, and has been active for {ago}.")
        return
    ctx.report(f"{settings.runtime_unit} is active; it is watched for {length(left)} more.")
    ctx.pause(min(left, _LOOK_SECONDS))


def _unit(ctx: ActionContext) -> Unit:
    name = ctx.settings.runtime_unit
    if not name:
        return Unit()
    argv = (
        ctx.system.find(_SYSTEMCTL) or _SYSTEMCTL,
        "show",
        "--property=LoadState,ActiveState,InvocationID",
        "--",
        name,
    )
    ran = ctx.system.run(argv, _SHOW_SECONDS, _ENVIRONMENT, ctx.must_stop)
    properties = dict(line.partition("=")[::2] for line in ran.words.splitlines()) if ran.well else {}
    return Unit(
        properties.get("LoadState", ""),
        properties.get("ActiveState", ""),
        clean(properties.get("InvocationID", ""), 64),
    )


def _is_before(ctx: ActionContext, unit: Unit) -> bool:
    return f"{_BEFORE}{unit.invocation}" in ctx.record.operations


def _waited(ctx: ActionContext, times: int = 1) -> bool:
    """Whether the phase has lasted for as long as a restart may take."""
    return ctx.time() - ctx.record.entered >= times * ctx.settings.runtime_seconds


def _why(ran: CommandOutcome) -> str:
    why = ran.fault or f"the command ended with status {ran.code}"
    words = clean(ran.words[-600:])
    return f"{why}. Its output: {words}" if words else f"{why}."
