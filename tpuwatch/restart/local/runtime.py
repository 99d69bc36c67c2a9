"""Restarting the runtime of this machine: a systemd unit, or whatever a command does.

systemd gives each start of a unit an id. By it a restart is proven, also by who only finds its intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.health.words import clean, length
from tpuwatch.restart.local.desk import call_off, fresh
from tpuwatch.restart.record import Phase

if TYPE_CHECKING:
    from tpuwatch.restart.local.desk import Desk
    from tpuwatch.restart.local.system import Ran

_SYSTEMCTL: Final = "systemctl"
_ENVIRONMENT: Final = {"LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
_SHOW_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 2.0
_BEFORE: Final = "invocation/"
_CHANGING: Final = frozenset({"activating", "deactivating", "reloading", "refreshing"})


@dataclass(frozen=True, slots=True)
class Unit:
    """What systemd says of the unit; all "" where it could not be asked."""

    loaded: str = ""  # "loaded", "not-found", "masked", …
    active: str = ""  # "active", "failed", …
    invocation: str = ""  # of its latest start


def turn(desk: Desk) -> None:
    """One step of the record."""
    phase = desk.record.phase
    if phase is Phase.REQUESTED:
        _begin(desk)
    elif phase is Phase.INTENT and desk.began_here:
        _restart(desk)
    elif phase is Phase.INTENT:
        _find_out(desk)
    else:
        _verify(desk)


def _begin(desk: Desk) -> None:
    settings = desk.settings
    if not fresh(desk):
        call_off(desk, "It was asked for too long ago.")
        return
    unit = _unit(desk)
    if not (settings.runtime_command or settings.runtime_unit):
        call_off(desk, "Neither runtime_unit nor runtime_command is given under [restart].")
        return
    if settings.runtime_unit and unit.loaded != "loaded":
        why = f"systemd calls it {clean(unit.loaded, 40)}" if unit.loaded else "systemd could not be asked for it"
        desk.end(
            Phase.NEEDS_PERSON,
            f"The runtime's unit {settings.runtime_unit} cannot be restarted: {why}. Name the right one with "
            "runtime_unit under [restart]. Nothing was done.",
        )
        return
    desk.write(
        Phase.INTENT,
        "The runtime is restarted.",
        boot_id=desk.system.boot_id(),
        operation="runtime_command" if settings.runtime_command else f"restart {settings.runtime_unit}",
        operations=(f"{_BEFORE}{unit.invocation}",),
    )


def _restart(desk: Desk) -> None:
    settings = desk.settings
    argv = settings.runtime_command or (
        desk.system.find(_SYSTEMCTL) or _SYSTEMCTL,
        "restart",
        "--no-ask-password",
        "--",
        settings.runtime_unit,
    )
    ran = desk.system.run(argv, settings.runtime_seconds, _ENVIRONMENT, desk.keep)
    if desk.keep():
        return  # the next driver finds out what became of it
    if ran.well:
        desk.write(Phase.VERIFYING, "The runtime was restarted; it is watched.", stops=1)
        return
    unit = _unit(desk)
    if ran.code is not None and unit.active == "active" and _is_before(desk, unit):
        desk.end(
            Phase.NEEDS_PERSON,
            f"The runtime was not restarted, and runs as before: {_why(ran)} What tpuwatch needs for it is told in "
            "docs/restart.md.",
        )
        return
    desk.write(Phase.VERIFYING, stops=1, note=f"The restart of the runtime has failed: {_why(ran)}")


def _find_out(desk: Desk) -> None:
    """Somebody ended between this intent and its end."""
    unit = _unit(desk)
    if not desk.settings.runtime_unit:
        _unknown(desk)
    elif unit.invocation and not _is_before(desk, unit):
        desk.write(Phase.VERIFYING, "The runtime was restarted; it is watched.", stops=1)
    elif _waited(desk, 2 if unit.active in _CHANGING else 1):
        _unknown(desk)
    else:
        desk.say("It is not known whether the runtime was restarted; that is looked at.")
        desk.pause(_LOOK_SECONDS)


def _unknown(desk: Desk) -> None:
    desk.end(
        Phase.FAILED,
        "tpuwatch ended while it restarted the runtime, and nothing shows that it was restarted. It is not restarted "
        "again for the same fault.",
    )


def _verify(desk: Desk) -> None:
    """Whether it runs, and goes on doing so."""
    record, settings = desk.record, desk.settings
    if not settings.runtime_unit:
        if record.note:
            desk.end(Phase.FAILED, record.note)
        else:
            desk.end(Phase.DONE, "The runtime's command was done, and says that it went well.")
        return
    unit = _unit(desk)
    now = desk.time()
    if unit.active == "active" and unit.invocation and not _is_before(desk, unit):
        _settle(desk, unit, now)
        return
    if _waited(desk):
        state = clean(unit.active, 40) or "not known"
        again = " (it still is the start from before)" if unit.active == "active" else ""
        desk.end(
            Phase.FAILED,
            f"{record.note or 'The runtime was restarted.'} The state of {settings.runtime_unit} is {state}{again} "
            f"after {length(settings.runtime_seconds)}. Look: `systemctl status {settings.runtime_unit}`.",
        )
        return
    if record.well_since:
        desk.write(Phase.VERIFYING, entered=record.entered, well_since=0.0, shown=unit.invocation)
    desk.say(f"The state of {settings.runtime_unit} is {clean(unit.active, 40) or 'not known'}; it is waited for.")
    desk.pause(_LOOK_SECONDS)


def _settle(desk: Desk, unit: Unit, now: float) -> None:
    record, settings = desk.record, desk.settings
    if not record.well_since or record.shown != unit.invocation:  # it has begun, or begun again by itself
        if record.well_since and _waited(desk):
            desk.end(Phase.FAILED, f"{settings.runtime_unit} was restarted, and does not stay up.")
            return
        desk.write(Phase.VERIFYING, entered=record.entered, well_since=now, shown=unit.invocation)
        return
    left = settings.settle_seconds - max(0.0, now - record.well_since)
    if left <= 0:
        ago = length(settings.settle_seconds)
        desk.end(Phase.DONE, f"{settings.runtime_unit} was restarted, and has been active for {ago}.")
        return
    desk.say(f"{settings.runtime_unit} is active; it is watched for {length(left)} more.")
    desk.pause(min(left, _LOOK_SECONDS))


def _unit(desk: Desk) -> Unit:
    name = desk.settings.runtime_unit
    if not name:
        return Unit()
    argv = (
        desk.system.find(_SYSTEMCTL) or _SYSTEMCTL,
        "show",
        "--property=LoadState,ActiveState,InvocationID",
        "--",
        name,
    )
    ran = desk.system.run(argv, _SHOW_SECONDS, _ENVIRONMENT, desk.keep)
    told = dict(line.partition("=")[::2] for line in ran.words.splitlines()) if ran.well else {}
    return Unit(told.get("LoadState", ""), told.get("ActiveState", ""), clean(told.get("InvocationID", ""), 64))


def _is_before(desk: Desk, unit: Unit) -> bool:
    return f"{_BEFORE}{unit.invocation}" in desk.record.operations


def _waited(desk: Desk, times: int = 1) -> bool:
    """Whether the phase has lasted for as long as a restart may take."""
    return desk.time() - desk.record.entered >= times * desk.settings.runtime_seconds


def _why(ran: Ran) -> str:
    why = ran.fault or f"the command ended with status {ran.code}"
    words = clean(ran.words[-600:])
    return f"{why}. It said: {words}" if words else f"{why}."
