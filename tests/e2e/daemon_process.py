"""The real daemon as a process, on directories of its own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tests.paths import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

T = TypeVar("T")

SECONDS = 120.0  # for anything to happen; a loaded machine is slow
_LOOK_SECONDS = (0.01, 0.05)  # from one look to the next: a look costs the one that is looked at some work, too

RULES = r"""
[[rule]]
id = "test-event"
cause = "hang"
summary = "Event {number_count}."
match = ['TESTEVENT \d+']
capture = ['TESTEVENT (?P<number_count>\d+)']
"""

NO_CLOUD = "[cloud]\nenabled = false\n[runtime]\nenabled = false"


def libtpu_name(severity: str = "INFO", *, pid: int = 2**30, started: str = "20260921-141320") -> str:
    """A file name as libtpu makes it; the process of that number does not exist."""
    return f"tpu_driver.t1v.vm.root.log.{severity}.{started}.{pid}"


def record(number: int, letter: str = "E") -> str:
    """A record of libtpu's with a test event in it."""
    return f"{letter}0921 14:13:20.{number % 1_000_000:06d}  4242 tpu.cc:7] TESTEVENT {number} and no more\n"


def wait_for(look: Callable[[], T], what: str, seconds: float = SECONDS) -> T:
    """Look until there is something true; fail, naming what was waited for, when the time is over."""
    deadline = time.monotonic() + seconds
    pause, longest = _LOOK_SECONDS
    while not (found := look()):
        if time.monotonic() > deadline:
            raise AssertionError(f"waited {seconds:.0f} s for {what}")
        time.sleep(pause)
        pause = min(1.5 * pause, longest)
    return found


def get(address: str, path: str) -> tuple[int, str]:
    """Status and body of the answer to GET; (0, "") when nobody answers."""
    connection = http.client.HTTPConnection(address, timeout=SECONDS)
    try:
        connection.request("GET", path)
        reply = connection.getresponse()
        return reply.status, reply.read().decode()
    except OSError:
        return 0, ""
    finally:
        connection.close()


class DaemonProcess:
    """`tpuwatch run`, started and ended by its process number. Use it in a with statement."""

    def __init__(self, root: Path, *, environ: Mapping[str, str] | None = None, by: Sequence[str] = ()) -> None:
        """`environ`: more variables for it. `by`: a command that starts it, and becomes it."""
        self.root = root
        self.logs, self.jobs, self.state, self.rules = (root / name for name in ("tpu_logs", "jobs", "state", "rules"))
        for directory in (self.logs, self.jobs, self.rules):
            directory.mkdir(exist_ok=True)
        (self.rules / "test.toml").write_text(RULES)
        self.config = root / "tpuwatch.toml"
        # Port 9 answers nobody: no test ever asks the real metadata server.
        own = {"PATH": os.defpath, "PYTHONPATH": str(ROOT), "GCE_METADATA_HOST": "127.0.0.1:9"}
        self.environ = {**own, "GCE_METADATA_IP": "127.0.0.1:9", **(environ or {})}
        self.by = by
        self.output = root / "daemon.log"
        self.configure()
        self._process: subprocess.Popen[bytes] | None = None

    def configure(self, *, listen: str = "127.0.0.1:0", more: str = "", **logs: object) -> None:
        """Write the configuration; `logs` replaces keys of [logs], `more` is added as it is, in place of no cloud."""
        keys = {
            "paths": [str(self.logs)],
            "job_paths": [str(self.jobs / "*.log")],
            "rules": [str(self.rules)],
            "poll_seconds": 0.1,
            **logs,
        }
        lines = [f"{key} = {json.dumps(value)}" for key, value in keys.items()]
        state = json.dumps(str(self.state))
        text = ["[logs]", *lines, "[http]", f'listen = "{listen}"', "[state]", f"dir = {state}", more or NO_CLOUD]
        self.config.write_text("\n".join(text) + "\n")

    def __enter__(self) -> DaemonProcess:  # noqa: PYI034 - Self is in typing from 3.11 on
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    # -- its life

    def spawn(self) -> None:
        """Start it, and wait for nothing."""
        with self.output.open("ab") as output:
            self._process = subprocess.Popen(
                [*self.by, sys.executable, "-m", "tpuwatch", "run", "--config", str(self.config)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=self.environ,
                cwd=self.root,
            )

    def start(self) -> DaemonProcess:
        """Start it and wait until it is ready."""
        self.spawn()
        wait_for(self._is_ready, "the daemon to be ready")
        return self

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        """End it by a signal; its exit status."""
        self.process.send_signal(number)
        return self.process.wait(SECONDS)

    def kill(self) -> None:
        """End it as a crash would."""
        self.process.kill()
        self.process.wait(SECONDS)

    def fails(self) -> tuple[int, str]:
        """Start it where it cannot work; its exit status and what it said."""
        self.spawn()
        status = self.process.wait(SECONDS)
        return status, self.said()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        """The process itself."""
        assert self._process is not None, "it was not started"
        return self._process

    def said(self) -> str:
        """All that it has printed so far."""
        return self.output.read_text(errors="replace")

    # -- what it shows

    @property
    def address(self) -> str:
        """Where it serves; empty as long as it has not said so."""
        try:
            return (self.state / "http.address").read_text().strip()
        except OSError:
            return ""

    def ask(self, path: str, address: str = "") -> tuple[int, str]:
        """Status and body of the answer to GET; (0, "") when nobody answers."""
        return get(address or self.address, path)

    def api(self, name: str) -> Any:
        """A document of the API."""
        status, body = self.ask(f"/api/v1/{name}")
        assert status == 200, body
        return json.loads(body)

    def metric(self, series: str) -> float:
        """The value of one series, such as `tpuwatch_events_total{cause="hang"}`."""
        found = re.search(rf"^{re.escape(series)} (\S+)$", self.ask("/metrics")[1], re.MULTILINE)
        assert found is not None, series
        return float(found[1])

    def counts(self, series: str, number: float) -> None:
        """Wait until the series has just this value: what is stored is counted a moment later."""
        wait_for(lambda: self.metric(series) == number, f"{series} to be {number:g}")

    def numbers(self) -> list[int]:
        """The numbers of all test events that it has stored, in the order of their storing."""
        return [event["details"]["number_count"] for event in self.api("events?after=0&limit=1000")["events"]]

    def sees(self, *numbers: int) -> None:
        """Wait until these and no other test events are stored, each once."""
        wait_for(lambda: len(self.numbers()) >= len(numbers), f"events {numbers}")
        assert sorted(self.numbers()) == sorted(numbers)

    def memory_bytes(self) -> int:
        """The most memory that it has ever had resident."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"VmHWM:\s+(\d+) kB", status)
        assert found is not None
        return int(found[1]) * 1024

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, self.said()
        return bool(self.address) and self.ask("/readyz")[0] == 200
