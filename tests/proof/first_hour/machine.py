"""The user's machine: tpuwatch from the wheel, a simulated TPU VM and cloud, a daemon, jobs, and Prometheus."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import tomli

from tests.e2e.daemon_in_cloud import IN_FORCE
from tests.e2e.daemon_process import SECONDS, get, wait_for
from tests.proof.monitoring.stack import free_port
from tests.standins.simulated import NOBODY
from tpuwatch.sim.simulator import toml_text

OWN: Final = "train-1"  # the node that this machine is
ELSEWHERE: Final = "train-2"
WITH_PEER: Final = "train-3"  # has a tpuwatch of its own that this one asks

# Minutes are seconds, as an operator may set them.
LIMITS: Final[dict[str, dict[str, Any]]] = {
    "logs": {"poll_seconds": 0.2, "compile_grace_seconds": 10.0},
    "cloud": {"poll_seconds": 1.0, "timeout_seconds": 2.0},
    "runtime": {"poll_seconds": 1.0},
    "health": {"boot_grace_seconds": 0.0, "settle_seconds": 2.0, "idle_seconds": 30.0},
    "restart": {
        "settle_seconds": 2.0,
        "stale_seconds": 2.0,
        "poll_seconds": 0.5,
        "confirm_seconds": 2.0,
        "confirm_polls": 2,
        "startup_seconds": 0.0,
        "cooldown_seconds": 0.0,
        "backoff_seconds": 1.0,
        "wait_seconds": 1.0,
        "verify_seconds": 2.0,
        "fleet_percent": 100.0,
    },
}


@dataclass(frozen=True)
class Shown:
    """One view: its text, how the command ended or the status of the answer, and what went to stderr."""

    text: str
    code: int
    errors: str = ""


@dataclass
class Job:
    """A program under `tpuwatch exec`, which does what it is told, line by line."""

    process: subprocess.Popen[str]
    output: Path

    def say(self, line: str) -> None:
        """Have it do something; returns when it has."""
        assert self.process.stdin is not None
        done = self.output.read_text().count("\ndone: ")
        self.process.stdin.write(f"{line}\n")
        self.process.stdin.flush()
        wait_for(lambda: self.output.read_text().count("\ndone: ") > done, f"the job to {line}")

    def end(self, line: str) -> Shown:
        """Have it do something after which it ends; what it and tpuwatch printed, and its exit status."""
        self.process.communicate(f"{line}\n", timeout=SECONDS)
        return Shown(self.output.read_text(), self.process.returncode)


@dataclass
class Machine:
    """The machine. `bin` has the tpuwatch that is used."""

    root: Path
    bin: Path
    listen: str = field(default_factory=lambda: f"127.0.0.1:{free_port()}")
    daemon: subprocess.Popen[bytes] | None = None
    tables: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the daemon's configuration
    jobs: list[Job] = field(default_factory=list)

    @property
    def simulator(self) -> Path:
        return self.root / "sim"

    @property
    def config(self) -> Path:
        return self.simulator / "tpuwatch.toml"

    @property
    def elsewhere(self) -> Path:
        """The same configuration on another machine of the cloud."""
        return self.simulator / "elsewhere.toml"

    @property
    def environ(self) -> dict[str, str]:
        """A user's: nothing of the checkout, no other metadata server, no other configuration."""
        return {
            "PATH": f"{self.bin}:{os.defpath}",
            "HOME": str(self.root),
            "LANG": "C.UTF-8",
            "TERM": "xterm-256color",
            "TPUWATCH_CONFIG": str(self.config),
            "GCE_METADATA_HOST": NOBODY,
            "GCE_METADATA_IP": NOBODY,
            "TPU_SKIP_MDS_QUERY": "1",
        }

    # -- commands

    def run(self, *words: str, environ: Mapping[str, str] | None = None, text: str = "") -> Shown:
        """A command of tpuwatch in a pipe."""
        done = subprocess.run(
            [self.bin / "tpuwatch", *words],
            input=text,
            capture_output=True,
            text=True,
            env={**self.environ, **(environ or {})},
            cwd=self.root,
            timeout=SECONDS,
            check=False,
        )
        return Shown(done.stdout, done.returncode, done.stderr)

    def on_terminal(self, columns: int, *words: str) -> Shown:
        """A command on a terminal that is so wide."""
        leader, follower = pty.openpty()
        fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
        with subprocess.Popen(
            [self.bin / "tpuwatch", *words],
            stdin=follower,
            stdout=follower,
            stderr=follower,
            env=self.environ,
            cwd=self.root,
            start_new_session=True,
        ) as process:
            os.close(follower)
            data = b""
            while True:
                try:
                    data += (chunk := os.read(leader, 1 << 16))
                except OSError:  # the last one that had it open has ended
                    break
                if not chunk:
                    break
            os.close(leader)
        text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", data.decode("utf-8", "replace"))
        return Shown(text, process.returncode)

    def sim(self, *words: str) -> None:
        """Have the simulator do something. Raises AssertionError where it refuses."""
        shown = self.run("sim", *words, "--dir", str(self.simulator))
        assert shown.code == 0, shown

    # -- the daemon

    @contextmanager
    def simulated(self, scenario: str) -> Iterator[None]:
        """The simulator runs, and the daemon's configuration is as the operator wants it."""
        with self._process("sim", scenario, "--dir", str(self.simulator), log="sim.log") as process:

            def is_ready() -> bool:
                assert process.poll() is None, (self.root / "sim.log").read_text()
                return (self.simulator / "sim.json").exists() and self.config.exists()

            wait_for(is_ready, "the simulator")
            self.tables = tomli.loads(self.config.read_text())
            self.configure(**LIMITS)
            try:
                yield
            finally:
                for job in self.jobs:  # one that hangs has not ended where the story broke off
                    self._end(job.process)
                if self.daemon is not None:
                    self._end(self.daemon)

    def configure(self, **tables: Mapping[str, Any]) -> None:
        """Set the address and these tables in the configuration that the simulator wrote."""
        for table, keys in {"http": {"listen": self.listen}, **tables}.items():
            self.tables[table] = {**self.tables.get(table, {}), **keys}
        self.config.write_text(toml_text(self.tables))
        beyond = {**self.tables, "cloud": {**self.tables["cloud"], "metadata_server": NOBODY}}
        self.elsewhere.write_text(toml_text(beyond))

    def start(self) -> None:
        """Start the daemon, as its unit would."""
        with (self.root / "daemon.log").open("ab") as log:
            self.daemon = subprocess.Popen(
                [self.bin / "tpuwatch", "run"], stdout=log, stderr=log, env=self.environ, cwd=self.root
            )
        self._serves(self.listen)

    def stop(self) -> None:
        """End the daemon, as `systemctl stop` does."""
        assert self.daemon is not None
        self._end(self.daemon)

    def reload(self, **tables: Mapping[str, Any]) -> None:
        """Have it take such a configuration into force, as an operator would."""
        assert self.daemon is not None
        before = self.journal.count(IN_FORCE)
        self.configure(**tables)
        self.daemon.send_signal(signal.SIGHUP)
        wait_for(lambda: self.journal.count(IN_FORCE) > before, "the new configuration")
        self._serves(self.listen)

    def _serves(self, listen: str) -> None:
        def answers() -> bool:
            assert self.daemon is not None
            assert self.daemon.poll() is None, self.journal
            return get(listen, "/healthz")[0] == 200

        wait_for(answers, f"the daemon to serve at {listen}")

    @property
    def journal(self) -> str:
        """All that the daemon has logged."""
        return (self.root / "daemon.log").read_text(errors="replace")

    def ask(self, path: str) -> Shown:
        """The answer to GET."""
        code, body = get(self.listen, path)
        return Shown(body, code)

    def api(self, name: str) -> Any:
        """A document of the API."""
        shown = self.ask(f"/api/v1/{name}")
        assert shown.code == 200, (name, shown)
        return json.loads(shown.text)

    def node(self, name: str = OWN) -> dict[str, Any]:
        """A node's document; nothing as long as it is not judged."""
        nodes: list[dict[str, Any]] = self.api("nodes")["nodes"]
        return next((one for one in nodes if one["node"] == name), {})

    def judged(self, name: str, *verdicts: str) -> dict[str, Any]:
        """The node's document, once it is judged to be one of these."""
        return wait_for(
            lambda: (found := self.node(name)).get("verdict") in verdicts and found, f"{name} to be {verdicts}"
        )

    def found(self, cause: str) -> dict[str, Any]:
        """The finding of a cause, once there is one."""
        return wait_for(
            lambda: next((one for one in self.api("findings")["findings"] if one["cause"] == cause), None),
            f"a finding of {cause}",
        )

    # -- jobs

    def job(self, name: str, *command: str, environ: Mapping[str, str] | None = None) -> Job:
        """Start a program under `tpuwatch exec`, its output in a file as a launcher has it."""
        output = self.root / f"{name}.out"
        with output.open("w") as file:
            process = subprocess.Popen(
                [self.bin / "tpuwatch", "exec", "--", *command],
                stdin=subprocess.PIPE,
                stdout=file,
                stderr=file,
                text=True,
                env={**self.environ, **(environ or {})},
                cwd=self.root,
            )
        self.jobs.append(Job(process, output))
        return self.jobs[-1]

    @contextmanager
    def _process(self, *words: str, log: str) -> Iterator[subprocess.Popen[bytes]]:
        with ExitStack() as ended, (self.root / log).open("ab") as output:
            process = subprocess.Popen(
                [self.bin / "tpuwatch", *words], stdout=output, stderr=output, env=self.environ, cwd=self.root
            )
            ended.callback(self._end, process)
            yield process

    @staticmethod
    def _end(process: subprocess.Popen[Any]) -> None:
        if process.poll() is None:
            process.terminate()
            timer = threading.Timer(20.0, process.kill)
            timer.start()
            process.wait()
            timer.cancel()
