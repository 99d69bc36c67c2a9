"""What the dashboards are drawn of: some minutes of a fleet of twelve nodes, of which some fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

from tests.proof.monitoring.watch import OOM, Watch

COUNT: Final = 12
NODES: Final = {"nodes": [{"name": "job-{number}", "count": COUNT, "phase": "training"}]}
BETWEEN_SECONDS: Final = 15.0


class Stage(Watch):
    """Twelve nodes; job-1 has its own daemon. What takes minutes elsewhere takes seconds here."""

    def configure_inside(self, **more: dict[str, Any]) -> None:
        launches = self.site.simulator.launches
        self.inside.machine.write(
            "proc/meminfo",
            f"MemTotal: {448 << 20} kB\nMemAvailable: {391 << 20} kB\nUnevictable: 20 kB\nMlocked: 10 kB\n",
        )
        self.inside.configure(
            listen=self.listen[self.inside],
            more=self.site.toml(cloud={"nodes": []}, health={"boot_grace_seconds": 0.0, "idle_seconds": 30.0}, **more),
            paths=[str(launches.logs)],
            job_paths=[str(launches.jobs / "*.log")],
            compile_grace_seconds=10.0,
        )

    def configure_outside(self) -> None:
        tables = self.site.toml(
            cloud={"nodes": [f"job-{number}" for number in range(1, COUNT + 1)]},
            runtime={"enabled": False},
            health={"boot_grace_seconds": 0.0, "settle_seconds": 0.0},
            peers={"enabled": True, "poll_seconds": 1.0, "timeout_seconds": 1.0},
            **{"peers.addresses": {"job-1": f"http://{self.listen[self.inside]}"}},
        )
        self.outside.configure(listen=self.listen[self.outside], more=tables)

    def play(self, say: Callable[[str], None]) -> None:
        """Let one thing after the other go wrong; some of it is put right, and at the end job-1 is dead."""

        def fill() -> None:
            (workload,) = next(node for node in self.site.world.nodes.values() if node.name == "job-1").workloads
            workload.hbm_used = 0.985

        def launch(name: str) -> None:
            self.site.do("launch", launch=name)
            self.site.do("restore", "job-1")  # a launch leaves no program behind, and one has trained here

        acts: list[tuple[str, Callable[[], object]]] = [
            ("all train", lambda: None),
            ("job-3 hangs", lambda: self.site.do("hang", "job-3")),
            ("job-5 is preempted", lambda: self.site.do("preempt", "job-5")),
            ("job-1 has a program that is too large", lambda: launch("hbm-oom")),
            ("its HBM is almost full", fill),
            ("it has no more memory, job-7 is stopped", self._exhausted),
            ("job-3 is well again", lambda: self.site.do("restore", "job-3")),
            ("job-1 idles under a live program", lambda: self.site.do("workload", "job-1", phase="stuck")),
            ("it still does", lambda: None),
            ("it still does", lambda: None),
            ("job-1 trains", lambda: self.site.do("restore", "job-1")),
            ("job-1 is dead, the API says READY", lambda: self.site.do("lie", "job-1")),
            ("it still does", lambda: None),
            ("it still does", lambda: None),
        ]
        for line, act in acts:
            say(line)
            act()
            time.sleep(BETWEEN_SECONDS)

    def _exhausted(self) -> None:
        with self.job_output(OOM):
            self.site.do("set", "job-7", state="STOPPED")
