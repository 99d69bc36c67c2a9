"""A machine made of files in a temporary directory, for checks to look at."""

from __future__ import annotations

import contextlib
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

from tpuwatch.config import Config
from tpuwatch.core import HttpError, HttpFault
from tpuwatch.core.clock import ManualClock
from tpuwatch.doctor.check import CheckStatus, Result
from tpuwatch.doctor.checks import CHECKS
from tpuwatch.doctor.environment import Environment
from tpuwatch.doctor.users import User

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

ME = User(os.getuid(), frozenset([os.getgid()]))
NOBODY = {"GCE_METADATA_HOST": "127.0.0.1:9"}  # nobody listens on the port that discards
STRANGER = User(54_321)  # nobody's number, and never root's
STATUS = (
    "Name:\tpython3\nState:\t{state}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nGid:\t7\t7\t7\t7\nGroups:\t\n"
    "CapEff:\t{capabilities}\n"
)


class Place:
    """The machine below a directory. Nothing of the real one is seen, and nobody is asked."""

    def __init__(self, root: Path) -> None:
        self.root = root
        (root / "proc").mkdir()
        (root / "tmp").mkdir(mode=0o1777)
        (root / "tmp").chmod(0o1777)

    def write(self, path: str, text: str = "", mode: int = 0o644) -> Path:
        """A file with all directories above it."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        file.chmod(mode)
        return file

    def folder(self, path: str, mode: int = 0o755) -> Path:
        """A directory."""
        folder = self.root / path.lstrip("/")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(mode)
        return folder

    def link(self, path: str, target: str) -> None:
        """A symbolic link."""
        link = self.root / path.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)

    def process(
        self,
        pid: int = 4711,
        *,
        environ: Mapping[str, str] | None = None,
        command: tuple[str, ...] = ("python3", "train.py"),
        uid: int = ME.uid,
        state: str = "S (sleeping)",
        locked: str = "unlimited",
        capabilities: str = "0",
    ) -> None:
        """A process as /proc shows it."""
        variables = {"TPU_NAME": "local", "PJRT_DEVICE": "TPU"} if environ is None else environ
        self.write(f"/proc/{pid}/environ", "".join(f"{name}={value}\0" for name, value in variables.items()))
        self.write(f"/proc/{pid}/cmdline", "".join(f"{word}\0" for word in command))
        self.write(f"/proc/{pid}/status", STATUS.format(uid=uid, state=state, capabilities=capabilities))
        self.write(
            f"/proc/{pid}/limits",
            f"Limit                     Soft\nMax locked memory         {locked}  {locked} bytes\n",
        )
        self.write(f"/proc/{pid}/stat", f"{pid} (python3) S 1 1 1 0 -1 0 0 0 0 0 5 5 0 0 20 0 1 0 100 0 0\n")
        self.folder(f"/proc/{pid}/fd")

    def chips(self, count: int = 4, device: str = "0x0063") -> None:
        """TPU chips on the PCI bus."""
        for number in range(count):
            self.write(f"/sys/bus/pci/devices/0000:00:0{number}.0/vendor", "0x1ae0\n")
            self.write(f"/sys/bus/pci/devices/0000:00:0{number}.0/device", f"{device}\n")

    def environment(self, *, environ: Mapping[str, str] | None = None, config: Any = None, **more: Any) -> Environment:
        """What the checks see; nobody answers on any network, and no command is there."""
        settings: dict[str, Any] = {
            "config": Config.model_validate({"cloud": {"enabled": False}} if config is None else config),
            "environ": {} if environ is None else environ,
            "clock": ManualClock(),
            "root": self.root,
            "me": ME,
            "run": lambda *_, **__: None,
            "fetch": _nobody,
            "disk": lambda _: (1 << 40, 1 << 39, 1 << 39),
            "glibc": lambda: "2.35",
            **more,
        }
        return Environment(**settings)


def _nobody(*_: Any, **__: Any) -> Any:
    raise HttpError(HttpFault.REFUSED, "Connection refused")


def results(name: str, environment: Environment) -> list[Result]:
    """What a check of that id says."""
    (check,) = [check for check in CHECKS if check.id == name]
    return check.results(environment)


def described(name: str, environment: Environment) -> list[str]:
    """The same, a line each: "status: text | fix", without the marks of commands."""
    return [f"{one.status.value}: {one.text} | {one.fix}".replace("`", "") for one in results(name, environment)]


def expect(name: str, environment: Environment, start: str, *parts: str) -> None:
    """The check has one result: it begins with `start` ("warn: …"), and each of the parts is in it."""
    (line,) = described(name, environment)
    assert line.startswith(start), line
    assert [part for part in parts if part not in line] == [], line


def statuses(name: str, environment: Environment) -> list[CheckStatus]:
    """The same, the statuses only."""
    return [one.status for one in results(name, environment)]


@contextlib.contextmanager
def serving(pages: Mapping[str, str], *, flavor: str = "Google", date: str | None = None) -> Iterator[str]:
    """An HTTP server on loopback with these pages, all else 404; its host:port. `date` replaces its Date header."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = pages.get(self.path)
            self.send_response(200 if body is not None else 404)
            if flavor:
                self.send_header("Metadata-Flavor", flavor)
            self.end_headers()
            self.wfile.write((body or "").encode())

        def do_POST(self) -> None:
            status, _, body = pages.get(self.path, "404 {}").partition(" ")
            self.send_response(int(status))
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body.encode())

        def date_time_string(self, timestamp: float | None = None) -> str:
            return super().date_time_string(timestamp) if date is None else date

        def log_message(self, *_: Any) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
