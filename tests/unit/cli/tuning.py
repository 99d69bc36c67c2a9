"""A machine with launches behind it, for `tpuwatch tune` to look at."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.unit.store.make import NOW
from tpuwatch.cli.main import main
from tpuwatch.core.clock import ManualClock
from tpuwatch.model.launches import Launch, Outcome
from tpuwatch.model.tune import SET_VARIABLE, SIZE, TuneHost
from tpuwatch.store import EventStore
from tpuwatch.tune import outlook
from tpuwatch.tune.host import read_host

GIB = 1 << 30


def launch(number: int, size: int, seconds: float | None, workload: str = "train", **facts: Any) -> Launch:
    """One that has ended, `number` hours after the first, with a buffer of `size` bytes that tpuwatch gave it."""
    outcome = Outcome.FAILED if seconds is None else Outcome.OK if seconds < 15 else Outcome.SLOW
    known: dict[str, Any] = {
        "host": "elsewhere",  # its process is none of this machine
        "chips": 4,
        "chip_kind": "TPU v5 lite",
        "premapped_bytes": size,
        "premapped_threshold_bytes": size,
        "init_seconds": seconds,
        "outcome": outcome,
        "environment": {SET_VARIABLE: SIZE, SIZE: str(size)},
        "workload": workload,
        "boot_id": "b",
        "ended": NOW + 3600 * number + 600,
        "exit_status": 0,
    }
    return Launch(pid=4000 + number, started=NOW + 3600.0 * number, **{**known, **facts})


def exhausted(number: int, size: int, seconds: float, need: int, **facts: Any) -> Launch:
    """One whose buffer had no room for a transfer of 512 MiB."""
    sizes = {"premapped_failures": 2, "premapped_need_bytes": need, "premapped_asked_bytes": GIB // 2}
    faults = {"premapped_exhausted": 40.0}
    return launch(number, size, seconds, **{"exit_status": 1, "faults": faults, **sizes, **facts})


GROWS = (exhausted(0, 4 * GIB, 11.8, GIB * 9 // 2),)
SETTLED = (*GROWS, launch(1, 6 * GIB, 13.1), launch(2, 6 * GIB, 12.9))


class Machine:
    """Where `tpuwatch tune` is called: a configuration, a home and, once there are launches, a store."""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root = root
        self.state = root / "state"
        self.own = root / "home" / ".local" / "state" / "tpuwatch" / "tune"
        self.config = root / "c.toml"
        self.configure()
        self._capsys = capsys

    def configure(self, tune: str = "max_mib = 8192\nmemory_percent = 90", listen: str = "127.0.0.1:1") -> None:
        """Write the configuration; nobody listens on port 1."""
        self.config.write_text(
            f'[state]\ndir = "{self.state}"\n[http]\nlisten = "{listen}"\n'
            f'[logs]\npaths = ["{self.root}/logs"]\n[tune]\nlog_dir = "{self.root}/logs"\n{tune}\n'
        )

    def store(self, *launches: Launch) -> None:
        """Have the daemon's store hold these too."""
        store = EventStore.open(self.state, ManualClock())
        store.commit([], [], launches)
        store.close()

    def run(self, *words: str) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of `tpuwatch tune`."""
        try:
            code = main(["tune", *words])
        except SystemExit as end:
            code = int(end.code or 0)
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def json(self, *words: str) -> dict[str, Any]:
        """The document of a call that was right."""
        code, out, err = self.run("--json", *words)
        assert err == ""
        assert code in (0, 1)
        found: dict[str, Any] = json.loads(out)
        return found


def _roomy(**facts: Any) -> TuneHost:
    """The host as it is, but with 100 GiB of memory."""
    return replace(read_host(**facts), total_bytes=100 * GIB)


def flat(text: str) -> str:
    """Text without its line breaks."""
    return " ".join(text.split())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Machine:
    (tmp_path / "home").mkdir()
    for name in (SIZE, "TPU_LOG_DIR", "LIBTPU_INIT_ARGS", "XDG_STATE_HOME", "TPUWATCH_WORKLOAD", SET_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(outlook, "read_host", _roomy)
    found = Machine(tmp_path, capsys)
    monkeypatch.setenv("TPUWATCH_CONFIG", str(found.config))
    return found
