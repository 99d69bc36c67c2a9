"""A simulated TPU VM in a temporary directory, in a simulated cloud, monitored by the real daemon."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.core import TpuwatchError
from tpuwatch.model import ADDRESS_FILE
from tpuwatch.sim.directory import CONFIG, SimulatorDirectory
from tpuwatch.sim.host.launches import start_process
from tpuwatch.sim.scenario.file import load_scenario
from tpuwatch.sim.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpuwatch.sim.scenario.actions import ScenarioAction, StartLaunch

START_SECONDS = 60.0  # a cold daemon needs about one; a busy machine is slow
STOP_SECONDS = 10.0
REQUEST_SECONDS = 5.0
POLL_SECONDS = 0.05

# The demo's evidence is old enough to be judged at the daemon's first poll.
DAEMON: dict[str, dict[str, Any]] = {
    "cloud": {"poll_seconds": 1.0},
    "runtime": {"poll_seconds": 1.0},
    "health": {"boot_grace_seconds": 0.0},  # the machine under it may have booted just now
    "http": {"listen": "127.0.0.1:0"},
}


class SimulatedMachine:
    """The simulated VM: directories, cloud, daemon and launches. A context manager that ends and removes them."""

    def __init__(
        self,
        *,
        pace: float = 1.0,
        command: tuple[str, ...] = (sys.executable, "-m", "tpuwatch"),
    ) -> None:
        """`pace` scales the waiting times of launches: 1 is real time, 0 is none. `command` starts tpuwatch.

        The simulator gets the scenario "demo" without its steps, which are in `steps`; the caller executes them.
        """
        self.pace = pace
        self.command = command
        self.address = ""
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> SimulatedMachine:  # noqa: PYI034 - Self is in typing from 3.11 on
        scenario = load_scenario("demo")
        self.steps = scenario.steps
        try:
            self.root = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="tpuwatch-demo-")))
            directory = self._cleanup.enter_context(SimulatorDirectory(self.root))
            cloud = Simulator(scenario.model_copy(update={"steps": ()}), directory, pace=self.pace)
            self.simulator = self._cleanup.enter_context(cloud)
            self.simulator.start()
        except BaseException:
            self._cleanup.close()
            raise
        self.logs, self.jobs, self.state = (self.root / name for name in ("tpu_logs", "jobs", "state"))
        for path in (self.logs, self.jobs, self.state):
            path.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def start_daemon(self) -> None:
        """Start `tpuwatch run` and wait until it serves; raises TpuwatchError with its last output if it does not."""
        config = self.root / CONFIG
        config.write_text(self.simulator.config(**DAEMON), encoding="utf-8")
        environment = {**os.environ, **self.simulator.environment()}
        command = (*self.command, "run", "--config", str(config))
        self.daemon = start_process(command, self.daemon_log, environment)
        self._cleanup.callback(terminate, self.daemon)
        address = wait_for(self._address, START_SECONDS, alive=lambda: self.daemon.poll() is None)
        if address is None:
            raise TpuwatchError(self._no_start())
        self.address = address

    def execute(self, step: ScenarioAction) -> str:
        """Execute a step of the scenario; return its outcome."""
        return self.simulator.executor.execute(step)

    def launch(self, step: StartLaunch) -> subprocess.Popen[bytes]:
        """Start the process of a launch step; closing the machine ends it."""
        return self.simulator.executor.launch(step)

    def get(self, path: str) -> Any:
        """The JSON document at this path of the daemon's API."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """The page at this path as text; raises TpuwatchError when the daemon does not answer."""
        connection = http.client.HTTPConnection(self.address, timeout=REQUEST_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            content = answer.read().decode()
        except (http.client.HTTPException, OSError) as error:
            reason = f"the daemon does not answer at {self.url}{path}: {error}"
            raise TpuwatchError(f"{reason}\n{self.log_tail()}") from error
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise TpuwatchError(f"the daemon answers {answer.status} at {self.url}{path}: {content[:200]}")
        return content

    @property
    def url(self) -> str:
        """Where the daemon serves, without a slash at its end."""
        return f"http://{self.address}"

    @property
    def daemon_log(self) -> Path:
        """What the daemon prints."""
        return self.root / "daemon.log"

    def _address(self) -> str | None:
        try:
            return (self.state / ADDRESS_FILE).read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None

    def _no_start(self) -> str:
        status = self.daemon.poll()
        how = f"did not serve within {START_SECONDS:.0f} s" if status is None else f"ended with exit status {status}"
        return f"the daemon {how}; it was started with\n  {' '.join(map(str, self.daemon.args))}\n{self.log_tail()}"  # type: ignore[arg-type]

    def log_tail(self) -> str:
        """The end of what the daemon has printed."""
        lines = self.daemon_log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(("its last output:", *(f"  {line}" for line in lines[-8:]))) if lines else "it printed nothing"


def terminate(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process; kill it if it does not end."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(check: Callable[[], Any], seconds: float, alive: Callable[[], bool] = lambda: True) -> Any:
    """Poll until `check` returns something; None after `seconds`, or once `alive` is false."""
    deadline = time.monotonic() + seconds
    while True:
        still = alive()
        found = check()
        if found is not None or not still or time.monotonic() > deadline:
            return found
        time.sleep(POLL_SECONDS)
