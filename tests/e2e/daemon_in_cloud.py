"""The real daemon as a process, on a made-up machine in a simulated cloud."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from tests.e2e.daemon_elsewhere import PATIENCE_SECONDS
from tests.e2e.daemon_process import SECONDS, DaemonProcess, wait_for
from tests.standins.machine import Machine
from tests.standins.simulated import Site

IN_FORCE, AS_IT_WAS = "is in force.", "The configuration stays as it was"


class DaemonInCloud(DaemonProcess):
    """`tpuwatch run` that watches a site, and the other commands beside it."""

    def __init__(
        self,
        root: Path,
        site: Site,
        *,
        environ: dict[str, str] | None = None,
        patience_seconds: float = PATIENCE_SECONDS,
        here: Path | None = None,
    ) -> None:
        """`patience_seconds` it has with each of the sources on its machine; `here` is in the place of its root."""
        root.mkdir(exist_ok=True)
        self.site = site
        self.machine = Machine(root / "machine")
        self.machine.has_real_sockets()
        self.patience_seconds = patience_seconds
        self._here = here or self.machine.root
        self._skip = root / "skip"
        self._put_skip(0.0)
        more = {**site.simulator.environment(), "HOME": str(root), **(environ or {})}
        super().__init__(root, environ=more)
        self.watch()

    def spawn(self) -> None:
        given = (str(self._here), str(self._skip), str(self.patience_seconds))
        self.by = (sys.executable, "-m", "tests.e2e.daemon_elsewhere", *given)
        super().spawn()

    def watch(self, **changes: dict[str, Any]) -> None:
        """Write the site's configuration with these changes."""
        self.configure(more=self.site.toml(**changes))

    def reload(self, **changes: dict[str, Any]) -> None:
        """Have it take such a configuration into force."""
        self._hang_up(IN_FORCE, changes)

    def refused(self, **changes: dict[str, Any]) -> None:
        """Have it refuse such a configuration."""
        self._hang_up(AS_IT_WAS, changes)

    def skip(self, seconds: float) -> None:
        """Let all its clocks jump ahead."""
        self._put_skip(self._skipped() + seconds)

    def command(self, *words: str) -> tuple[int, str]:
        """Exit status of another command of tpuwatch with the same configuration, and what it prints, on one line."""
        done = subprocess.run(
            [sys.executable, "-m", "tpuwatch", *words, "--config", str(self.config)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            env=self.environ,
            cwd=self.root,
            timeout=SECONDS,
            check=False,
        )
        return done.returncode, " ".join(f"{done.stdout} {done.stderr}".split())

    def nodes(self) -> dict[str, Any]:
        """All watched nodes, by name."""
        return {node["node"]: node for node in self.api("nodes")["nodes"]}

    def judged(self, node: str, *verdicts: str) -> Any:
        """A node's document, once it is judged to be one of these."""

        def look() -> Any:
            found = self.nodes().get(node)
            return found if found and found["verdict"] in verdicts else None

        return wait_for(look, f"{node} to be {' or '.join(verdicts)}")

    def suspects(self, node: str) -> Any:
        """A node's document, once an answer to what is asked from now on shows what is bad and does not count yet.

        Time that is skipped then counts for it. A node is unknown for other reasons, too: where it hangs in the midst
        of its answers, some of them are good.
        """
        begun = time.time() + self._skipped()

        def look() -> Any:
            found = self.nodes().get(node)
            suspect = found is not None and found["suspect_since"] is not None
            return found if suspect and any(one["at_epoch"] > begun for one in found["reasons"]) else None

        return wait_for(look, f"{node} to be suspect")

    def series(self, name: str) -> dict[str, float]:
        """All series of a metric that are not 0, by their labels: `{node="train-1",verdict="idle"}`."""
        pairs = (line.rpartition(" ") for line in self.ask("/metrics")[1].splitlines() if line.startswith(f"{name}{{"))
        return {labels.removeprefix(name): float(value) for labels, _, value in pairs if float(value)}

    def counted(self, series: str) -> float:
        """The value of one series, 0 where it is not there yet."""
        name, _, labels = series.partition("{")
        return self.series(name).get("{" + labels, 0.0)

    def audited(self) -> list[tuple[str, str, str | None]]:
        """What it has written into the audit of restarts: what it was about, what came of it, and why not."""
        try:
            *lines, _ = (self.state / "audit.jsonl").read_text().split("\n")  # one may just be written
        except OSError:
            return []
        return [(one["decision"], one["result"], one["blocked"]) for one in map(json.loads, lines)]

    def _hang_up(self, word: str, changes: dict[str, Any]) -> None:
        before = self.said().count(word)
        self.watch(**changes)
        self.process.send_signal(signal.SIGHUP)
        wait_for(lambda: self.said().count(word) > before, f"the configuration: {word}")

    def _skipped(self) -> float:
        return float(self._skip.read_text())

    def _put_skip(self, seconds: float) -> None:
        new = self._skip.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._skip)
