"""What must hold of the units that go with tuning: the one that removes old logs, and the drop-in of a job."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.proof.boot import manual
from tests.proof.boot.failure import expect, until
from tests.proof.boot.service import LOGS, STATE
from tpuwatch.model.tune import SIZE

if TYPE_CHECKING:
    from tests.proof.boot.service import Service

TIMER, PRUNING = "tpuwatch-prune.timer", "tpuwatch-prune.service"
AT_ONCE = "[Timer]\nOnActiveSec=1s\nRandomizedDelaySec=0\nAccuracySec=100ms\n"
PRUNE_SECONDS = 180.0  # it stands back behind all else that the machine does
PLAN = f"/{STATE}/tune/plans/default.env"
OVERRIDE = "1073741824"
TRAIN = "train.service"
GIVEN = "/run/train.env"


def pruned(service: Service) -> str:
    """The timer, set up by the manual's commands, has the service remove other users' old logs and spare open ones."""
    machine, directory = service.machine, "/run/systemd/system/tpuwatch-prune.timer.d"
    old, held, new = (f"{LOGS}/tpu_driver.vm.nobody.log.INFO.20200101-00000{number}.999{number}" for number in range(3))
    beside, outside = f"{LOGS}/tpu_driver.notes", "/tmp/tpu_driver.link.target"  # noqa: S108 # as a stranger's may be
    link = f"{LOGS}/tpu_driver.vm.nobody.log.INFO.20200101-000009.9999"
    machine.run("mkdir", "-p", LOGS)
    service.background("held", "sleep", "infinity", options=("--uid=nobody", f"--property=StandardError=append:{held}"))
    machine.shell(
        f"for file in {old} {held} {new} {beside} {outside}; do echo I >> $file; done\n"
        f"chown nobody {old} {held} {new}; chmod 600 {old} {held} {new}; ln -sf {outside} {link}\n"
        f"touch -d '400 days ago' {old} {held} {beside} {outside}"
    )
    try:
        machine.shell(manual.commands("docs/operations.md", "## The logs themselves"))
        states = {name: service.show(name, TIMER) for name in ("ActiveState", "SubState", "UnitFileState")}
        wanted = {"ActiveState": "active", "SubState": "waiting", "UnitFileState": "enabled"}
        expect(states == wanted, f"the timer is {states}")
        due = service.show("NextElapseUSecRealtime", TIMER)
        expect(due, "the timer is never due")
        expect(service.show("Result", PRUNING) == "success" and _there(service, old), "it ran before its time")
        machine.write(f"{directory}/test.conf", AT_ONCE)
        machine.shell(f"systemctl daemon-reload; systemctl restart {TIMER}")
        until(lambda: not _there(service, old), PRUNE_SECONDS, "the timer has had the old file removed")
        until(lambda: service.show("ActiveState", PRUNING) == "inactive", PRUNE_SECONDS, "the service has ended")
        expect(service.show("Result", PRUNING) == "success", "the service failed")
        lost = [path for path in (held, new, beside, outside, link) if not _there(service, path)]
        expect(not lost, f"removed too: {', '.join(lost)}")
        machine.run("systemctl", "stop", "held")
        machine.run("systemctl", "start", PRUNING, seconds=PRUNE_SECONDS)
        expect(not _there(service, held), "what nobody holds any more is spared")
    finally:
        machine.run("systemctl", "stop", "held", PRUNING, check=False)
        machine.shell(f"rm -rf {directory}; {manual.sentence('docs/operations.md', TIMER)}")
        machine.shell(f"rm -f {LOGS}/tpu_driver.* {outside}")
    return f"due {due}; an old file went, open and new ones, links and strangers' stayed"


def job(service: Service) -> str:
    """A unit with the drop-in of the manual starts without a plan, and then with the environment that is decided."""
    machine = service.machine
    machine.write(
        f"/etc/systemd/system/{TRAIN}",
        f"[Service]\nType=oneshot\nUser=nobody\nExecStart=/usr/bin/env\nStandardOutput=truncate:{GIVEN}\n",
    )
    try:
        service.fresh()
        machine.run("rm", "-f", PLAN)
        machine.shell(manual.commands("docs/operations.md", "## The next launch's environment"))
        expect(not _given(service) & {"TPUWATCH_WORKLOAD=default"}, "there is an environment before it was decided")
        service.fresh(tune={"mode": "act", f"overrides.{SIZE}": OVERRIDE})
        service.launch("busy")
        until(lambda: _there(service, PLAN), 30, "the environment file is written")
        lines = [line for line in machine.run("cat", PLAN).splitlines() if line and not line.startswith("#")]
        wanted = {f"{name}={value[1:-1]}" for name, _, value in (line.partition("=") for line in lines)}
        missing = wanted - _given(service)
        marks = {"TPUWATCH_WORKLOAD=default", f"{SIZE}={OVERRIDE}"}
        expect(marks <= wanted and not missing, f"not given: {', '.join(sorted(missing | marks - wanted))}")
        changes = [event.details for event in service.events("tune-change") if event.file == PLAN]
        sizes = [change["after"] for change in changes if change["variable"] == SIZE]
        expect(sizes == [OVERRIDE], f"the events have the sizes {sizes}")
    finally:
        machine.shell(f"rm -rf /etc/systemd/system/{TRAIN} /etc/systemd/system/{TRAIN}.d {GIVEN}")
        machine.run("systemctl", "daemon-reload")
    return f"{len(wanted)} variables of the file, among them the overriding size, which one event reports"


def _given(service: Service) -> set[str]:
    """The environment that the unit's command had."""
    service.machine.run("systemctl", "start", TRAIN)
    return set(service.machine.run("cat", GIVEN).splitlines())


def _there(service: Service, path: str) -> bool:
    return service.machine.status("test", "-e", path) == 0
