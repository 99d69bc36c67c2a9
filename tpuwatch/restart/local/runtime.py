"""Restarting the runtime of this machine: a systemd unit, or whatever a command does.

systemd gives each start of a unit an id. By it a restart is proven, also by who only finds its intent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tpuwatch.core import clean, installed, length
from tpuwatch.model import OnMachine, Phase

if TYPE_CHECKING:
    from tpuwatch.restart.local.machine_driver import MachineDriver

_ENVIRONMENT: Final = {"LC_ALL": "C", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
_SHOW_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 2.0
_CHANGING: Final = frozenset({"activating", "deactivating", "reloading", "refreshing"})


@dataclass(frozen=True, slots=True)
class Unit:
    """The state of the unit in systemd; all "" if it is not known."""

    loaded: str = ""  # "loaded", "not-found", "masked", …
    active: str = ""  # "active", "failed", …
    invocation: str = ""  # of its latest start


def run_step(driver: MachineDriver) -> None:
    """One step of the record."""
    phase = driver.record.phase
    if phase is Phase.REQUESTED:
        _begin(driver)
    elif phase is Phase.INTENT and driver.began_here:
        _restart(driver)
    elif phase is Phase.INTENT:
        _find_out(driver)
    else:
        _verify(driver)


def _begin(driver: MachineDriver) -> None:
    settings = driver.settings
    unit = _unit(driver)
    if not (settings.runtime_command or settings.runtime_unit):
        driver.cancel("Neither runtime_unit nor runtime_command is given under [restart].")
        return
    if settings.runtime_unit and unit.loaded != "loaded":
        why = f"systemd calls it {clean(unit.loaded, 40)}" if unit.loaded else "systemd could not be asked for it"
        driver.end(
            Phase.NEEDS_OPERATOR,
            f"The runtime's unit {settings.runtime_unit} cannot be restarted: {why}. Name the right one with "
            "runtime_unit under [restart]. Nothing was done.",
        )
        return
    driver.write(
        Phase.INTENT,
        "The runtime is restarted.",
        boot_id=driver.system.boot_id(),
        machine=OnMachine(
            "runtime_command" if settings.runtime_command else f"restart {settings.runtime_unit}",
            invocation=unit.invocation,
        ),
    )


def _restart(driver: MachineDriver) -> None:
    settings = driver.settings
    argv = settings.runtime_command or _systemctl(driver, "restart", "--no-ask-password")
    ran = driver.system.run(argv, settings.runtime_seconds, _ENVIRONMENT, driver.must_stop)
    if driver.must_stop():
        return  # the next driver finds out what became of it
    if ran.well:
        driver.write(Phase.VERIFYING, "The runtime was restarted; it is watched.", stops=1)
        return
    unit = _unit(driver)
    if ran.code is not None and unit.active == "active" and _is_before(driver, unit):
        driver.end(
            Phase.NEEDS_OPERATOR,
            f"The runtime was not restarted, and runs as before: {ran.why('the command')} What tpuwatch needs for it "
            f"is described in {installed('docs/restart.md')}.",
        )
        return
    driver.write(Phase.VERIFYING, stops=1, note=f"The restart of the runtime has failed: {ran.why('the command')}")


def _find_out(driver: MachineDriver) -> None:
    """A driver died between this intent and its outcome."""
    unit = _unit(driver)
    if not driver.settings.runtime_unit:
        _unknown(driver)
    elif unit.invocation and not _is_before(driver, unit):
        driver.write(Phase.VERIFYING, "The runtime was restarted; it is watched.", stops=1)
    elif _waited(driver, 2 if unit.active in _CHANGING else 1):
        _unknown(driver)
    else:
        driver.report("It is not known whether the runtime was restarted; that is looked at.")
        driver.pause(_LOOK_SECONDS)


def _unknown(driver: MachineDriver) -> None:
    driver.end(
        Phase.FAILED,
        "tpuwatch ended while it restarted the runtime, and nothing shows that it was restarted. It is not restarted "
        "again for the same fault.",
    )


def _verify(driver: MachineDriver) -> None:
    """Whether it runs, and goes on doing so."""
    record, settings = driver.record, driver.settings
    if not settings.runtime_unit:
        if record.note:
            driver.end(Phase.FAILED, record.note)
        else:
            driver.end(Phase.DONE, "The runtime's command ended, and reported success.")
        return
    unit = _unit(driver)
    now = driver.clock.time()
    if unit.active == "active" and unit.invocation and not _is_before(driver, unit):
        _settle(driver, unit, now)
        return
    if _waited(driver):
        state = clean(unit.active, 40) or "not known"
        again = " (it still is the start from before)" if unit.active == "active" else ""
        driver.end(
            Phase.FAILED,
            f"{record.note or 'The runtime was restarted.'} The state of {settings.runtime_unit} is {state}{again} "
            f"after {length(settings.runtime_seconds)}. Look: `systemctl status {settings.runtime_unit}`.",
        )
        return
    if record.well_since:
        driver.write(Phase.VERIFYING, entered=record.entered, well_since=0.0, shown=unit.invocation)
    driver.report(f"The state of {settings.runtime_unit} is {clean(unit.active, 40) or 'not known'}; it is waited for.")
    driver.pause(_LOOK_SECONDS)


def _settle(driver: MachineDriver, unit: Unit, now: float) -> None:
    record, settings = driver.record, driver.settings
    if not record.well_since or record.shown != unit.invocation:  # it has begun, or begun again by itself
        if record.well_since and _waited(driver):
            driver.end(Phase.FAILED, f"{settings.runtime_unit} was restarted, and does not stay up.")
            return
        driver.write(Phase.VERIFYING, entered=record.entered, well_since=now, shown=unit.invocation)
        return
    left = settings.settle_seconds - max(0.0, now - record.well_since)
    if left <= 0:
        ago = length(settings.settle_seconds)
        driver.end(Phase.DONE, f"{settings.runtime_unit} was restarted, and has been active for {ago}.")
        return
    driver.report(f"{settings.runtime_unit} is active; it is watched for {length(left)} more.")
    driver.pause(min(left, _LOOK_SECONDS))


def _unit(driver: MachineDriver) -> Unit:
    if not driver.settings.runtime_unit:
        return Unit()
    argv = _systemctl(driver, "show", "--property=LoadState,ActiveState,InvocationID")
    ran = driver.system.run(argv, _SHOW_SECONDS, _ENVIRONMENT, driver.must_stop)
    properties = dict(line.partition("=")[::2] for line in ran.words.splitlines()) if ran.well else {}
    return Unit(
        properties.get("LoadState", ""),
        properties.get("ActiveState", ""),
        clean(properties.get("InvocationID", ""), 64),
    )


def _systemctl(driver: MachineDriver, *words: str) -> tuple[str, ...]:
    return (driver.system.find("systemctl") or "systemctl", *words, "--", driver.settings.runtime_unit)


def _is_before(driver: MachineDriver, unit: Unit) -> bool:
    return unit.invocation == driver.record.machine.invocation


def _waited(driver: MachineDriver, times: int = 1) -> bool:
    """Whether the phase has lasted for as long as a restart may take."""
    return driver.clock.time() - driver.record.entered >= times * driver.settings.runtime_seconds
