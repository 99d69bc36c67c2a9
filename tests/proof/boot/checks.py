"""What must hold of the unit's life, one function each: it says in a few words what it has seen, or raises Failed."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

from tests.proof.boot import manual, package, sandbox, tuning
from tests.proof.boot.failure import expect, until
from tests.proof.boot.service import CONFIG, GUEST, JOB, JOBS, PYTHON, UNIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proof.boot.service import Service

OTHER_JOB = f"{JOBS}/other.log"
INSTALL_SECONDS = 120.0
STOP_SECONDS = 5.0  # of the 15 that the unit grants
LOADED = "tpuwatch_config_last_reload_timestamp_seconds"
LINES, LINES_PER_SECOND, KILLS = 2000, 250, 3


def installed(service: Service) -> str:
    """README's commands make a unit that systemd has heard to be ready, and that starts with the machine."""
    service.machine.shell(manual.commands("README.md", "## Install on a TPU VM"), seconds=INSTALL_SECONDS)
    facts = {name: service.show(name) for name in ("ActiveState", "SubState", "Type", "UnitFileState", "DropInPaths")}
    wanted = {"ActiveState": "active", "SubState": "running", "Type": "notify", "UnitFileState": "enabled"}
    expect(facts == {**wanted, "DropInPaths": ""}, f"the unit is {facts}")
    expect(service.show("StatusText"), "tpuwatch has reported no status to systemd")
    began, ready = (int(service.show(f"{name}TimestampMonotonic")) / 1e6 for name in ("InactiveExit", "ActiveEnter"))
    return f"active {ready - began:.1f} s after its start: {service.show('StatusText')}"


def reloaded(service: Service) -> str:
    """A reload brings a new configuration into force, and a bad one leaves it; the process stays."""
    service.fresh()
    pid = service.pid
    loaded = service.metric(LOADED) or 0.0
    service.configure(logs={"job_paths": [OTHER_JOB]})
    service.machine.run("systemctl", "reload", UNIT)
    until(lambda: (service.metric(LOADED) or 0.0) > loaded, 10, "it has reloaded")
    service.machine.shell(f"echo 'BOOTED-LINE 1 and no more' >> {OTHER_JOB}")
    until(lambda: any(event.file == OTHER_JOB for event in service.events("booted-line")), 10, "it follows")
    service.machine.write(CONFIG, "[cloud]\npoll_secondz = 1\n")
    service.machine.run("systemctl", "reload", UNIT)
    until(lambda: service.metric("tpuwatch_config_reload_success") == 0, 10, "the bad configuration is refused")
    expect("poll_secondz" in service.store(), "the log does not name the bad key")
    expect(service.pid == pid, "the process is another one")
    expect((service.show("ActiveState"), service.show("NRestarts")) == ("active", "0"), "it was restarted")
    return "the same process, with what is new and good"


def killed(service: Service) -> str:
    """SIGKILL, again and again under a job that writes: each of its lines is one event."""
    service.fresh(drop_in="RestartSec=200ms\n")
    before = len(service.events("booted-line"))
    service.background("job", PYTHON, f"{GUEST}/writer.py", JOB, str(LINES), str(LINES_PER_SECOND))
    for kill in range(1, KILLS + 1):
        enough = before + kill * LINES // (KILLS + 1)
        until(lambda enough=enough: len(service.events("booted-line")) >= enough, 20, f"{enough} events are stored")
        pid = service.pid
        service.machine.shell(f"kill -KILL {pid}")
        until(lambda pid=pid: service.pid not in (0, pid), 10, "it is started again")
    until(lambda: len(service.events("booted-line")) >= before + LINES, 20, "all events are stored")
    numbers = Counter(event.details["number_count"] for event in service.events("booted-line") if event.file == JOB)
    lost = [number for number in range(1, LINES + 1) if numbers[number] == 0]
    double = [number for number, times in numbers.items() if times > 1]
    expect(not lost and not double, f"{len(lost)} lines are lost and {len(double)} are there twice")
    expect(service.show("NRestarts") == str(KILLS), f"{service.show('NRestarts')} restarts, not {KILLS}")
    return f"{KILLS} times, {LINES} lines: none lost, none twice"


def watched(service: Service) -> str:
    """A daemon that stands still is ended and started again; one that works is not."""
    service.fresh(drop_in="WatchdogSec=4\n")
    pid, late = service.pid, time.monotonic() + 6
    until(lambda: time.monotonic() > late and service.status(), 20, "it has outlived the watchdog's time")
    expect(service.pid == pid, "the watchdog ended a daemon that worked")
    service.machine.shell(f"kill -STOP {pid}")
    stopped = time.monotonic()
    until(lambda: service.pid not in (0, pid), 30, "it is ended and started again")
    took = time.monotonic() - stopped
    until(lambda: service.show("ActiveState") == "active", 20, "it is ready again")
    expect("Watchdog timeout" in service.store(), "it was not the watchdog")
    return f"a new process {took:.1f} s after SIGSTOP, with WatchdogSec=4 and the unit's RestartSec"


def stopped(service: Service) -> str:
    """A stop is quick and clean, whatever it waits for: the cloud, the metadata server, callers with half a request."""
    service.fresh()
    service.sim("fault", "--black-hole", "--method", "ListNodes")
    service.sim("fault", "--black-hole", "--method", "GetRuntimeMetric")
    before = service.calls().get("ListNodes", 0)
    until(lambda: service.calls().get("ListNodes", 0) > before, 20, "a call is lost")
    service.background("callers", PYTHON, f"{GUEST}/callers.py", "127.0.0.1", "9478", "10")
    until(
        lambda: "open" in service.machine.run("journalctl", "--unit=callers", "--output=cat"), 10, "callers are there"
    )
    began = time.monotonic()
    service.machine.run("systemctl", "stop", UNIT)
    took = time.monotonic() - began
    service.machine.run("systemctl", "stop", "callers", check=False)
    expect(took < STOP_SECONDS, f"it took {took:.1f} s")
    ended = tuple(service.show(name) for name in ("ActiveState", "Result", "ExecMainStatus"))
    expect(ended == ("inactive", "success", "0"), f"it ended as {ended}")
    return f"{took:.1f} s, with calls in flight and callers that hang"


def misconfigured(service: Service) -> str:
    """A wrong configuration ends it with status 2, and systemd does not try again."""
    service.fresh()
    service.machine.write(CONFIG, "[cloud]\npoll_secondz = 1\n")
    expect(service.machine.status("systemctl", "restart", UNIT) != 0, "it has started")
    ended = tuple(service.show(name) for name in ("ActiveState", "SubState", "ExecMainStatus", "NRestarts"))
    expect(ended == ("failed", "failed", "2", "0"), f"it ended as {ended}")
    expect("poll_secondz" in service.store(), "the log does not name the bad key")
    return "status 2, no second try"


def rebooted(service: Service) -> str:
    """It starts with the machine, cloud or no cloud, with all that it knew."""
    service.fresh()
    service.machine.run("systemctl", "stop", UNIT)
    known = len(service.events())
    service.machine.reboot()
    service.forget_simulator()
    until(lambda: (status := service.status()) is not None and status["ready"], 20, "it is ready")
    expect(service.metric("tpuwatch_store_durable") == 1, "its store is not durable")
    expect(len(service.events()) >= known, "events are lost")
    service.fresh()
    until(lambda: service.verdict() == "healthy", 20, "it judges again")
    return f"ready by itself, {known} events kept"


def upgraded(service: Service) -> str:
    """The commands for an upgrade leave it running, with its events."""
    service.fresh()
    known, pid = len(service.events()), service.pid
    service.machine.shell(manual.commands("docs/operations.md", "## Upgrading"), seconds=INSTALL_SECONDS)
    until(lambda: (status := service.status()) is not None and status["ready"], 20, "it is ready")
    expect(service.pid != pid and len(service.events()) >= known, "it was not restarted, or has lost events")
    return "restarted, events kept"


def removed(service: Service) -> str:
    """The commands for its removal leave nothing."""
    service.fresh()
    service.machine.shell("rm -rf /run/systemd/system/tpuwatch.service.d")  # ours
    service.machine.shell(manual.commands("docs/operations.md", "## Removing it"))
    expect(service.show("LoadState") == "not-found", f"the unit is {service.show('LoadState')}")
    expect(not (rest := service.remains()), f"still there: {' '.join(rest)}")
    return "no file, no user, no unit"


CHECKS: dict[str, Callable[[Service], str]] = {
    "installed": installed,
    "signals": sandbox.signals,
    "logs": sandbox.logs,
    "holders": sandbox.holders,
    "tls": sandbox.tls,
    "confined": sandbox.confined,
    "bounded": sandbox.bounded,
    "pruned": tuning.pruned,
    "job": tuning.job,
    "reloaded": reloaded,
    "killed": killed,
    "watched": watched,
    "stopped": stopped,
    "misconfigured": misconfigured,
    "rebooted": rebooted,
    "upgraded": upgraded,
    "removed": removed,
    "packaged": package.packaged,
}
FIRST = "installed"  # without it there is nothing to check
