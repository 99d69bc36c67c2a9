"""tpuwatch.service in the booted machine, as an operator sees it, and the simulator beside it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.proof.boot.failure import Failed, expect, until
from tests.proof.boot.manual import REPOSITORY
from tpuwatch.sim.simulator import toml_text
from tpuwatch.store import StoreReader

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.proof.boot.machine import Machine
    from tpuwatch.model.events import Event

UNIT = "tpuwatch"
PROGRAM = "/opt/tpuwatch/bin/tpuwatch"
PYTHON = "/opt/tpuwatch/bin/python"
GUEST = "/mnt/tpuwatch/tests/proof/boot/guest"
CONFIG = "/etc/tpuwatch/config.toml"
STATE = "var/lib/tpuwatch"
URL = "http://127.0.0.1:9478"
LOGS = "/tmp/tpu_logs"  # noqa: S108 # where libtpu has them
JOBS = "/var/log/jobs"
JOB = f"{JOBS}/train.log"
RULES = "/etc/tpuwatch/rules"
TEST_DROP_IN = f"/run/systemd/system/{UNIT}.service.d/test.conf"
SIMULATOR = "/run/sim"
READY_SECONDS = 20.0
RULE = r"""
[[rule]]
id = "booted-line"
cause = "mesh_error"
summary = "Line {number_count}."
match = ['BOOTED-LINE [0-9]+ ']
capture = ['BOOTED-LINE (?P<number_count>[0-9]+) ']
"""


class Service:
    """What can be done to it and seen of it."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self._note: dict[str, Any] = {}

    # -- systemd's side

    def show(self, name: str, unit: str = UNIT) -> str:
        """A property of the unit, or of another one, as systemd has it."""
        return self.machine.run("systemctl", "show", "-P", name, unit).strip()

    @property
    def pid(self) -> int:
        """The main process's number in the machine; 0 for none."""
        return int(self.show("MainPID"))

    def process(self) -> dict[str, str]:
        """The main process's /proc/PID/status."""
        lines = self.machine.run("cat", f"/proc/{self.pid}/status").splitlines()
        return {key: value.strip() for key, _, value in (line.partition(":") for line in lines)}

    def store(self, lines: int = 40) -> str:
        """What the unit said last."""
        words = ("--no-pager", "--output=cat", f"--lines={lines}")
        return self.machine.run("journalctl", "--unit", UNIT, *words)

    def last_words(self) -> str:
        """The same for a report of a failure, whatever state the machine is in."""
        try:
            return "\n".join(f"    {line}" for line in self.store(15).splitlines())
        except Failed as failure:
            return f"    {failure}"

    def fresh(self, *, drop_in: str = "", **tables: Mapping[str, Any]) -> None:
        """Start it again, watching the simulator, with more in its configuration and in the unit."""
        self.simulate()
        self.configure(**tables)
        self.drop_in(self.environment() + drop_in)
        self.start()

    def start(self) -> None:
        """Start it again, and wait until systemd and tpuwatch itself say that it is ready."""
        self.machine.run("systemctl", "reset-failed", UNIT, check=False)  # many starts in a short time are meant
        self.machine.run("systemctl", "restart", UNIT)
        until(lambda: (status := self.status()) is not None and status["ready"], READY_SECONDS, "it is ready")

    def drop_in(self, text: str) -> None:
        """What this test adds to the unit, apart from what an operator installs."""
        self.machine.write(TEST_DROP_IN, f"[Service]\n{text}")
        self.machine.run("systemctl", "daemon-reload")

    def background(self, name: str, *command: str, options: tuple[str, ...] = ()) -> None:
        """Start a command as a unit of its own."""
        self.machine.run("systemctl", "stop", name, check=False)
        self.machine.run("systemctl", "reset-failed", name, check=False)
        self.machine.run("systemd-run", "--quiet", f"--unit={name}", *options, "--", *command)

    # -- tpuwatch's side

    def status(self) -> Any:
        """Its own account; None while it does not answer."""
        printed = self.machine.run(PROGRAM, "status", "--json", "--config", CONFIG, check=False)
        return json.loads(printed) if printed.startswith("{") else None

    def verdict(self) -> str:
        """What it says of the machine's own node; "" while it says nothing."""
        status = self.status()
        return str(status["node"]["verdict"]) if status and status["node"] else ""

    def signal(self, name: str) -> Any:
        """What it says of one of its signals; None while it does not answer."""
        status = self.status()
        return status and next(one for one in status["signals"] if one["name"] == name)

    def get(self, path: str) -> str:
        """A page of its server; "" while it does not serve it."""
        return self.machine.run("python3", "-c", _GET, URL + path, check=False)

    def metric(self, series: str) -> float | None:
        """The value of a series; None where there is none."""
        lines = self.get("/metrics").splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.startswith(f"{series} ")), None)

    def events(self, rule: str = "") -> list[Event]:
        """All that is in the store, of one rule or of all."""
        reader = StoreReader.open(self.machine.tree / STATE)
        return [event for event in reader.events(after_id=0, limit=1_000_000) if rule in ("", event.rule)]

    def configure(self, **tables: Mapping[str, Any]) -> None:
        """Write its configuration: the simulator's, as far as that is about the cloud, and these."""
        settings = {table: dict(self._note["settings"][table]) for table in ("cloud", "runtime", "monitoring")}
        settings["logs"] = {"job_paths": [JOB], "rules": [RULES]}
        for table, values in tables.items():
            settings.setdefault(table, {}).update(values)
        self.machine.write(CONFIG, toml_text(settings))

    def remains(self) -> list[str]:
        """What a removal has left: files with its name, its user and group."""
        return self.machine.shell(
            "find / -xdev -iname '*tpuwatch*' -not -path '/mnt/*' -not -path '/tmp/*' -not -path '/run/*' "
            "-not -path '/var/log/store/*'; getent passwd tpuwatch || true; getent group tpuwatch || true"
        ).split()

    # -- what it watches

    def simulate(self) -> None:
        """Have the simulated cloud run, once, and have no fault in it."""
        if not self._note:
            self.machine.write(f"{RULES}/booted.toml", RULE)
            self.machine.run("mkdir", "-p", JOBS)
            self.background("sim", PROGRAM, "sim", "--dir", SIMULATOR)
            note = until(
                lambda: self.machine.run("cat", f"{SIMULATOR}/sim.json", check=False),
                READY_SECONDS,
                "the simulator runs",
            )
            self._note = json.loads(note)
        self.sim("clear")
        self.sim("node", "train-1", "restore")
        self.sim("node", "train-1", "phase=training")

    def forget_simulator(self) -> None:
        """The machine was booted: it runs no longer."""
        self._note = {}

    def sim(self, *words: str) -> str:
        """A command to the simulator."""
        return self.machine.run(PROGRAM, "sim", *words, "--dir", SIMULATOR)

    def calls(self) -> dict[str, int]:
        """How many calls the simulator has taken, by method and answer; a method alone has no answer yet."""
        return dict(json.loads(self.sim("state", "--json"))["calls"])

    def environment(self) -> str:
        """The lines of a unit that lead the daemon to the simulator's metadata server, and bound it as TasksMax does.

        In a container the pids controller may be absent, so that systemd cannot enforce TasksMax; the limit for
        processes of a user, who has but this one, counts threads too.
        """
        pairs = " ".join(f"{name}={value}" for name, value in self._note["environment"].items())
        return f"Environment={pairs}\nLimitNPROC={self.show('TasksMax')}\n"

    def launch(self, name: str) -> None:
        """Let a process of root write libtpu's logs, which nobody else may read."""
        command = f"{PYTHON} -m tpuwatch.sim.host.launch {name} --logs {LOGS} --pace 0"
        self.machine.run("sh", "-c", f"umask 077; {command} >/dev/null 2>&1 || true")

    def sandboxed(self, program: str) -> Any:
        """What a program of ours prints as JSON when it runs in the unit's place, with all of its settings."""
        name = "tpuwatch-probe"
        lines = (REPOSITORY / "systemd/tpuwatch.service").read_text(encoding="utf-8").splitlines()
        other = {"Type": "oneshot", "ExecStart": f"{PYTHON} {GUEST}/{program}", "Restart": "no", "WatchdogSec": "0"}
        keys = [line.partition("=")[0] for line in lines]
        unit = [f"{key}={other[key]}" if key in other else line for key, line in zip(keys, lines, strict=True)]
        expect(set(other) <= set(keys), "the unit has no longer the lines that the probe replaces")
        self.machine.write(f"/run/systemd/system/{name}.service", "\n".join(unit) + "\n")
        self.machine.run("systemctl", "daemon-reload")
        self.machine.run("systemctl", "start", name)
        said = self.machine.run("journalctl", "--unit", name, "--no-pager", "--output=cat")
        return json.loads(next(line for line in said.splitlines() if line.startswith("{")))


_GET = """
import sys, urllib.request
sys.stdout.write(urllib.request.urlopen(sys.argv[1], timeout=5).read().decode())
"""
