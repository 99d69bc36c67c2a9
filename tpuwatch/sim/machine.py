"""A stand-in TPU VM in a temporary directory, in a stand-in cloud, with the real daemon watching it."""

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

from tpuwatch.errors import TpuwatchError
from tpuwatch.export.view import ADDRESS_FILE
from tpuwatch.sim.place import CONFIG, Place
from tpuwatch.sim.scenario_file import load_scenario
from tpuwatch.sim.simulator import Simulator

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from tpuwatch.sim.actions import Action, StartLaunch

START_SECONDS = 60.0  # a cold daemon needs about one; a busy machine is slow
STOP_SECONDS = 10.0
REQUEST_SECONDS = 5.0
POLL_SECONDS = 0.05

# The story's evidence lies far enough in the past: nothing has to be waited for but the daemon's looks.
DAEMON: dict[str, dict[str, Any]] = {
    "cloud": {"poll_seconds": 1.0},
    "runtime": {"poll_seconds": 1.0},
    "health": {"boot_grace_seconds": 0.0},  # the machine under it may have booted just now
    "http": {"listen": "127.0.0.1:0"},
}


class Machine:
    """The simulated VM: its directories, its cloud, its daemon and its launches. Leaving it ends and removes them."""

    def __init__(
        self,
        *,
        pace: float = 1.0,
        command: tuple[str, ...] = (sys.executable, "-m", "tpuwatch"),
        scenario: str = "demo",
    ) -> None:
        """`pace` stretches what launches wait for: 1 in real time, 0 not at all. `command` starts tpuwatch.

        Of the scenario the cloud is taken; its steps are `steps`, for whoever tells the story to `do`.
        """
        self.pace = pace
        self.command = command
        self.address = ""
        self._scenario = scenario
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Machine:  # noqa: PYI034 - Self is in typing from 3.11 on
        scenario = load_scenario(self._scenario)
        self.steps = scenario.steps
        try:
            self.root = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="tpuwatch-demo-")))
            place = self._cleanup.enter_context(Place(self.root))
            cloud = Simulator(scenario.model_copy(update={"steps": ()}), place, pace=self.pace)
            self.simulator = self._cleanup.enter_context(cloud)
            self.simulator.start()
        except BaseException:
            self._cleanup.close()
            raise
        self.logs, self.jobs, self.state = (self.root / name for name in ("tpu_logs", "jobs", "state"))
        for directory in (self.logs, self.jobs, self.state):
            directory.mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cleanup.close()

    def start_daemon(self) -> None:
        """Start `tpuwatch run` and wait until it serves; raises TpuwatchError with its last words if it does not."""
        config = self.root / CONFIG
        config.write_text(self.simulator.config(**DAEMON), encoding="utf-8")
        environment = {**os.environ, **self.simulator.environment()}
        self.daemon = self._spawn((*self.command, "run", "--config", str(config)), self.daemon_log, environment)
        address = wait_for(self._address, START_SECONDS, alive=lambda: self.daemon.poll() is None)
        if address is None:
            raise TpuwatchError(self._no_start())
        self.address = address

    def do(self, step: Action) -> str:
        """Do a step of the scenario; what happened, in a sentence."""
        return self.simulator.director.do(step)

    def launch(self, step: StartLaunch) -> subprocess.Popen[bytes]:
        """Do a step that is a launch: a process of its own, which leaving ends."""
        return self.simulator.director.launch(step)

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
            raise TpuwatchError(f"{reason}\n{self.last_words()}") from error
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
        return f"the daemon {how}; it was started with\n  {' '.join(map(str, self.daemon.args))}\n{self.last_words()}"  # type: ignore[arg-type]

    def last_words(self) -> str:
        """The end of what the daemon has printed."""
        lines = self.daemon_log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(("its last words:", *(f"  {line}" for line in lines[-8:]))) if lines else "it printed nothing"

    def _spawn(self, command: tuple[str, ...], output: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C is for the demo alone, which then ends its processes in order.
        with output.open("ab") as stream:
            process = subprocess.Popen(  # noqa: S603 - our own program
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                env=environment,
                start_new_session=True,
            )
        self._cleanup.callback(end, process)
        return process


def end(process: subprocess.Popen[bytes]) -> None:
    """Ask a process to end, and make it end when it does not."""
    process.terminate()
    try:
        process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def wait_for(look: Callable[[], Any], seconds: float, alive: Callable[[], bool] = lambda: True) -> Any:
    """Look until something is there; None when `seconds` have passed, or when nothing is there and nobody is alive."""
    deadline = time.monotonic() + seconds
    while True:
        still = alive()
        found = look()
        if found is not None or not still or time.monotonic() > deadline:
            return found
        time.sleep(POLL_SECONDS)
