"""A stand-in TPU VM in a temporary directory, with the real daemon watching it."""

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
from tpuwatch.sim.scenario import LAUNCHES

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

START_SECONDS = 20.0  # a cold daemon needs about one
STOP_SECONDS = 10.0
REQUEST_SECONDS = 5.0
POLL_SECONDS = 0.05

CONFIG = """\
[logs]
paths = [{logs}]
job_paths = [{jobs}]

[http]
listen = "127.0.0.1:0"

[state]
dir = {state}
"""


class Machine:
    """The simulated VM: its directories, its daemon and its launches. Leaving it ends and removes them."""

    def __init__(self, *, pace: float = 1.0, command: tuple[str, ...] = (sys.executable, "-m", "tpuwatch")) -> None:
        """`pace` stretches what launches wait for: 1 in real time, 0 not at all. `command` starts tpuwatch."""
        self.pace = pace
        self.command = command
        self.address = ""
        self._cleanup = contextlib.ExitStack()

    def __enter__(self) -> Machine:  # noqa: PYI034 - Self is in typing from 3.11 on
        self.root = Path(self._cleanup.enter_context(tempfile.TemporaryDirectory(prefix="tpuwatch-demo-")))
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
        config = self.root / "tpuwatch.toml"
        # A JSON string is a TOML string too.
        quoted = {name: json.dumps(str(path)) for name, path in self._watched().items()}
        config.write_text(CONFIG.format(**quoted), encoding="utf-8")
        self.daemon = self._spawn((*self.command, "run", "--config", str(config)), self.daemon_log)
        address = wait_for(self._address, START_SECONDS, alive=lambda: self.daemon.poll() is None)
        if address is None:
            raise TpuwatchError(self._no_start())
        self.address = address

    def launch(self, name: str) -> subprocess.Popen[bytes]:
        """Start one launch of tpuwatch.sim.scenario as a process of its own."""
        command = (
            sys.executable,
            *("-m", "tpuwatch.sim.scenario", name),
            *("--logs", str(self.logs)),
            *("--pace", str(self.pace)),
        )
        environment = {**os.environ, **LAUNCHES[name].environment}
        return self._spawn(command, self.jobs / f"{name}.log", environment)

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

    def _watched(self) -> dict[str, Path]:
        return {"logs": self.logs, "jobs": self.jobs / "*.log", "state": self.state}

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

    def _spawn(
        self, command: tuple[str, ...], output: Path, environment: dict[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
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
