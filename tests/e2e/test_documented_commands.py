"""The commands that documents show, as far as they only read, with a daemon in a simulated cloud."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.e2e.daemon_in_cloud import DaemonInCloud
from tests.e2e.daemon_process import SECONDS
from tests.standins.documented_commands import documented_commands, reads
from tests.standins.simulated import simulated

MISUSED = 2


def test_what_is_shown_can_be_run(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("RESOURCE_EXHAUSTED: Attempting to allocate 2.00G. That was not possible. There are 1.50G free.\n")
    shown = {
        words: document for words, document in documented_commands().items() if reads(words) and words != ("diagnose",)
    }
    assert len(shown) > 30
    (tmp_path / "rules").mkdir()
    files = {"/etc/tpuwatch/rules": str(tmp_path / "rules")}
    files |= dict.fromkeys(("FILE", "job.log", "/var/log/train.log"), str(log))
    wrong = []
    with simulated(tmp_path / "sim") as site, DaemonInCloud(tmp_path / "daemon", site) as daemon:
        daemon.machine.process(4242, files=("/dev/vfio/0",))
        daemon.start()
        daemon.judged("train-1", "healthy")
        for words, document in shown.items():
            known = {**files, "FILE": str(daemon.config)} if words[0] == "config" else files
            given = [known.get(word, word) for word in words]
            done = subprocess.run(
                [sys.executable, "-m", "tpuwatch", *given],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                env={**daemon.environ, "TPUWATCH_CONFIG": str(daemon.config)},
                cwd=tmp_path,
                timeout=SECONDS,
                check=False,
            )
            if done.returncode == MISUSED or "Traceback" in done.stderr:
                wrong.append(f"{document}: tpuwatch {' '.join(words)}: {done.returncode} {done.stderr[:300]}")
    assert wrong == []
