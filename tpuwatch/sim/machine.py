"""A simulated TPU VM in a temporary directory, in a simulated cloud, with the real daemon and commands on it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpuwatch.core import HttpClient, HttpError, SystemClock, TpuwatchError
from tpuwatch.model import ADDRESS_FILE
from tpuwatch.sim.directory import CONFIG, SimulatorDirectory
from tpuwatch.sim.host.launches import start_process, without_tpu
from tpuwatch.sim.scenario.file import load_scenario
from tpuwatch.sim.simulator import Simulator
from tpuwatch.web import DaemonAddress

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TextIO

    from tpuwatch.sim.scenario.actions import ScenarioAction

START_SECONDS = 60.0  # a cold daemon needs about one; a busy machine is slow
STOP_SECONDS = 10.0
REQUEST_SECONDS = 5.0
POLL_SECONDS = 0.05
NO_SERVER = "127.0.0.1:9"  # where nobody serves metadata

# What takes minutes elsewhere takes seconds here.
CONFIGURATION: dict[str, dict[str, Any]] = {
    "logs": {"compile_grace_seconds": 10.0},
    "cloud": {"poll_seconds": 1.0},
    "runtime": {"poll_seconds": 1.0},
    "tune": {"headroom_percent": 10.0},
    "restart": {"settle_seconds": 2.0, "stale_seconds": 2.0, "poll_seconds": 0.5},
}

JOB_SCRIPT = "train.py"
JOB_NEED = 17 << 28  # of the premapped buffer: a little more than libtpu makes by itself
_JOB = """\
# A stand-in for a training job: it does what libtpu and a job do by the TPU_* variables, without a TPU.
import os
import sys

from tpuwatch.sim import LaunchScript, run_launch

print("TPU_PREMAPPED_BUFFER_SIZE is", os.environ.get("TPU_PREMAPPED_BUFFER_SIZE", "not set"), flush=True)
sys.exit(run_launch(LaunchScript(need={need}, init_base=0.5, init_per_gib=0.25, steps=6, pace={pace}), os.environ))
"""
ELSEWHERE = "elsewhere.toml"  # the configuration of commands on another machine of the cloud


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
        self._starting: threading.Thread | None = None
        self._started: list[subprocess.Popen[bytes]] = []  # commands

    def __enter__(self) -> SimulatedMachine:  # noqa: PYI034 - Self is in typing from 3.11 on
        scenario = load_scenario("demo")
        self.steps = list(scenario.steps)
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
            path.mkdir(exist_ok=True)
        self._cleanup.callback(self._end_commands)
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def start_daemon(self) -> None:
        """Start `tpuwatch run` and wait until it serves; raises TpuwatchError with its last output if it does not."""
        self.config.write_text(self.simulator.config(**CONFIGURATION), encoding="utf-8")
        cloud = {**CONFIGURATION["cloud"], "metadata_server": NO_SERVER}
        elsewhere = self.simulator.config(**{**CONFIGURATION, "cloud": cloud})
        (self.root / ELSEWHERE).write_text(elsewhere, encoding="utf-8")
        (self.root / JOB_SCRIPT).write_text(_JOB.format(need=JOB_NEED, pace=self.pace), encoding="utf-8")
        environment = {**self.environment, **self.simulator.environment()}
        self.daemon = start_process((*self.command, "run", "--config", str(self.config)), self.daemon_log, environment)
        self._cleanup.callback(terminate, self.daemon)
        address = wait_for(self._address, START_SECONDS, alive=lambda: self.daemon.poll() is None)
        if address is None:
            raise TpuwatchError(self._no_start())
        self.address = address

    def run(self, words: Sequence[str], output: TextIO, *, elsewhere: bool = False) -> int:
        """Run a command of tpuwatch in the directory, or on another machine of the cloud; its exit code."""
        output.flush()
        # Not in this thread: a signal's exception would come between the process and the note of it.
        thread = threading.Thread(target=self._start, args=(words, output, elsewhere), name="demo-command")
        self._starting = thread
        thread.start()
        thread.join()
        return self._started[-1].wait()

    def _end_commands(self) -> None:
        """End what an interrupted command left."""
        thread = self._starting
        if thread is not None:
            wait_for(lambda: thread.ident, START_SECONDS)  # it may have been interrupted while it was started
            thread.join()
        for process in self._started:
            if process.poll() is None:
                terminate_group(process)

    def _start(self, words: Sequence[str], output: TextIO, elsewhere: bool) -> None:
        config = self.root / ELSEWHERE if elsewhere else self.config
        process = subprocess.Popen(  # noqa: S603 - our own program
            (*self.command, *words),
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**self.environment, "TPUWATCH_CONFIG": str(config)},
            cwd=self.root,
            start_new_session=True,  # Ctrl-C is for us alone
        )
        self._started.append(process)

    def commands(self) -> list[str]:
        """What to type in a shell elsewhere: first what it needs to be here, then what there is to see."""
        directory = shlex.quote(str(self.root))
        needed = [f"cd {directory}", f"export TPUWATCH_CONFIG={shlex.quote(str(self.config))}"]
        if shutil.which("tpuwatch") is None:
            needed.append(f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH")
        return [
            *needed,
            "tpuwatch status --verbose",
            "tpuwatch tune --explain",
            "tpuwatch events",
            "tpuwatch restarts history",
            f"tpuwatch exec -- python3 {JOB_SCRIPT}",
            f"tpuwatch sim node train-1 lie --dir {directory}",
            "tpuwatch nodes --watch",
        ]

    def pause(self, seconds: float) -> None:
        """Leave time to read."""
        time.sleep(seconds)

    @property
    def config(self) -> Path:
        """The configuration of the daemon and of commands."""
        return self.root / CONFIG

    @property
    def environment(self) -> dict[str, str]:
        """The environment of the daemon and of commands: the user's, without what is for the jobs on the machine."""
        own = without_tpu(os.environ)
        path = os.pathsep.join([str(Path(sys.executable).parent), own.get("PATH", os.defpath)])
        return {**own, "PATH": path, "TPUWATCH_CONFIG": str(self.config)}

    def execute(self, step: ScenarioAction) -> str:
        """Execute a step of the scenario; return its outcome."""
        return self.simulator.executor.execute(step)

    def get(self, path: str) -> Any:
        """The JSON document at this path of the daemon's API."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """The page at this path as text; raises TpuwatchError when the daemon does not answer."""
        url = f"{self.url}{path}"
        try:
            request = partial(HttpClient(SystemClock()).request, seconds=REQUEST_SECONDS)
            answer = DaemonAddress(self.address).get(path, request)
        except HttpError as error:
            raise TpuwatchError(
                f"the daemon does not answer at {url}: {error.fault.value}\n{self.log_tail()}"
            ) from error
        if answer.status != HTTPStatus.OK:
            raise TpuwatchError(f"the daemon answers {answer.status} at {url}: {answer.text[:200]}")
        return answer.text

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


def terminate_group(process: subprocess.Popen[bytes]) -> None:
    """Terminate a process that leads a group, and all in the group; kill what does not end."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        wait_for(lambda: process.poll(), STOP_SECONDS)
        os.killpg(process.pid, signal.SIGKILL)
        while True:
            process.poll()
            os.killpg(process.pid, 0)  # until none is left
            time.sleep(POLL_SECONDS)


def wait_for(check: Callable[[], Any], seconds: float, alive: Callable[[], bool] = lambda: True) -> Any:
    """Poll until `check` returns something; None after `seconds`, or once `alive` is false."""
    deadline = time.monotonic() + seconds
    while True:
        still = alive()
        found = check()
        if found is not None or not still or time.monotonic() > deadline:
            return found
        time.sleep(POLL_SECONDS)
