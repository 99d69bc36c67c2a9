"""`tpuwatch restart` over a simulated cloud, in this process, with a clock that only its waits advance."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.restart.records import record
from tests.unit.sim.cloud.servers import PROJECT, ZONE, Cloud, cloud_running
from tpuwatch.cli import restart
from tpuwatch.cli.main import main
from tpuwatch.model.restart import RestartRecord, Target
from tpuwatch.restart.ledger.sqlite import SqliteLedger
from tpuwatch.restart.operator.report import NodeReporter
from tpuwatch.restart.workflow.types import PresentEvidence, Within
from tpuwatch.terminal.restart import RestartDisplay

OTHER_OWNER = "elsewhere/boot/12/34/abcd"  # a driver on another machine


def flat(text: str) -> str:
    """A text on one line."""
    return " ".join(text.split())


def target(name: str = "train-1") -> Target:
    return Target(PROJECT, ZONE, name)


def toml(address: str, state: Path) -> str:
    """A configuration with that cloud and that state directory."""
    return (
        f'[cloud]\nendpoint = "{address}"\ninsecure = true\nproject = "{PROJECT}"\nzone = "{ZONE}"\n'
        f'[state]\ndir = "{state}"\n[http]\nlisten = "127.0.0.1:0"\n[restart]\nsettle_seconds = 5.0\n'
    )


class Site:
    """A cloud, a machine from which its nodes are restarted, and what was printed."""

    def __init__(self, cloud: Cloud, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.cloud = cloud
        self.clock = cloud.clock
        self.state = root / "state"
        self.config = root / "c.toml"
        self.config.write_text(toml(cloud.server.address, self.state))
        self.ledger = SqliteLedger(self.state, cloud.clock)
        self.on_wait: Callable[[RestartDisplay], None] = lambda _: None  # called after each wait
        self.on_linger: Callable[[], None] = lambda: None  # called after each wait for who continues
        self.on_confirm: Callable[[], None] | None = None  # called in place of the question, whose answer is yes
        self.present = PresentEvidence(within=Within.ANSWERS, heard="its own tpuwatch answers")
        self._capsys = capsys

    def add(self, name: str = "train-1", *, bad: bool = True, **fields: Any) -> Any:
        """One more node, of which the API says that it is bad."""
        node = self.cloud.add(name, **fields)
        if bad:
            node.health = "TIMEOUT"
        return node

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of `tpuwatch restart`."""
        return self._run("restart", *words)

    def restarts(self, *words: str) -> tuple[int, str, str]:
        """The same of `tpuwatch restarts`."""
        return self._run("restarts", *words)

    def _run(self, *words: str) -> tuple[int, str, str]:
        try:
            code = main(words)
        except SystemExit as end:
            code = int(end.code or 0)
        output = self._capsys.readouterr()
        return code, output.out, output.err

    def json(self, *words: str) -> tuple[int, list[Any]]:
        """Exit code of `tpuwatch restart --json`, and the documents on standard output, a line each."""
        return self._documents(self.run(*words, "--json"))

    def restarts_json(self, *words: str) -> tuple[int, list[Any]]:
        """The same of `tpuwatch restarts --json`."""
        return self._documents(self.restarts(*words, "--json"))

    @staticmethod
    def _documents(output: tuple[int, str, str]) -> tuple[int, list[Any]]:
        return output[0], [json.loads(line) for line in output[1].splitlines()]

    def record(self, name: str = "train-1") -> RestartRecord:
        """As the ledger holds it."""
        stored = self.ledger.read(target(name))
        assert stored is not None
        return stored.record

    def put(self, node: str = "train-1", **fields: Any) -> RestartRecord:
        """Write a restart into the ledger, whatever there was before."""
        now = self.clock.time()
        made = record(node, **{"requested": now - 60, "entered": now - 30, **fields})
        stored = self.ledger.read(made.target)
        self.ledger.write(made, stored.version if stored else 0)
        return made

    def renew(self, name: str = "train-1") -> None:
        """Write the record again, as its driver does to keep its lease."""
        stored = self.ledger.read(target(name))
        assert stored is not None
        self.ledger.write(stored.record, stored.version)

    def audit(self) -> list[Any]:
        file = self.state / "audit.jsonl"
        return [json.loads(line) for line in file.read_text("ascii").splitlines()] if file.exists() else []

    def calls(self) -> list[str]:
        """The calls that change something."""
        changing = ("StopNode", "StartNode", "ResetQueuedResource")
        return [call.method for call in self.cloud.world.calls if call.method in changing]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Site]:
    with cloud_running() as cloud:
        site = Site(cloud, tmp_path, capsys)

        def wait(display: RestartDisplay, seconds: float) -> bool:
            cloud.pass_time(max(0.01, seconds))
            site.on_wait(display)
            return display.interrupted

        def linger(_: RestartDisplay, seconds: float) -> None:
            cloud.pass_time(seconds)
            site.on_linger()

        confirm = RestartDisplay.confirm

        def confirmed(display: RestartDisplay, target: Target, *, healthy: bool) -> bool:
            if site.on_confirm is None:
                return confirm(display, target, healthy=healthy)
            site.on_confirm()
            return True

        monkeypatch.setattr(RestartDisplay, "linger", linger)
        monkeypatch.setattr(RestartDisplay, "confirm", confirmed)
        monkeypatch.setattr(restart, "make_clock", lambda: cloud.clock)
        monkeypatch.setattr(RestartDisplay, "wait", wait)
        monkeypatch.setattr(NodeReporter, "judge_again", lambda *_: site.present)
        monkeypatch.setenv("GCE_METADATA_HOST", "127.0.0.1:9")
        monkeypatch.setenv("TPUWATCH_CONFIG", str(site.config))
        monkeypatch.setattr("sys.stdin", io.StringIO())
        yield site
