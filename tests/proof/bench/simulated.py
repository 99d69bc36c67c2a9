"""A simulated cloud in a process of its own, and the real daemon that watches it."""

from __future__ import annotations

import contextlib
import http.client
import re
from typing import TYPE_CHECKING, Any

from tests.proof.bench.processes import daemon, tpuwatch
from tpuwatch.model.status import ADDRESS_FILE
from tpuwatch.sim.client import Client
from tpuwatch.sim.directory import INFO
from tpuwatch.sim.simulator import toml_text

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SECONDS = 30.0  # for an answer of the daemon's

# This machine is a worker of a node that trains; another node is watched beside it.
PAIR = """\
title = "Two nodes that train"

[[nodes]]
name = "train-{number}"
count = 2
phase = "training"
phase_seconds = 3600.0
"""


@contextlib.contextmanager
def simulator(directory: Path, scenario: str, *options: str) -> Iterator[Client]:
    """`tpuwatch sim`, with what can be done to it."""
    directory.mkdir()
    with tpuwatch("sim", scenario, *options, "--dir", str(directory), until=directory / INFO):
        yield Client(directory)


@contextlib.contextmanager
def watcher(
    client: Client, directory: Path, environ: dict[str, str] | None = None, **tables: dict[str, Any]
) -> Iterator[Watcher]:
    """The real daemon, which watches all of the simulated cloud; `tables` change its configuration, `environ` its
    environment."""
    directory.mkdir()
    logs = directory / "logs"
    logs.mkdir()
    settings = {name: client.info["settings"][name] for name in ("cloud", "runtime", "monitoring")}
    if environ is not None:
        settings["cloud"] = {key: one for key, one in settings["cloud"].items() if key != "metadata_server"}
    node = toml_text({name: {**settings.get(name, {}), **tables.get(name, {})} for name in {**settings, **tables}})
    around = {**client.info["environment"], **(environ or {})}
    with daemon(logs, directory / "state", node=node, environ=around) as pid:
        yield Watcher(pid, directory / "state")


class Watcher:
    """A daemon that runs: its process, and what it exports to Prometheus."""

    def __init__(self, pid: int, state: Path) -> None:
        self.pid = pid
        self.address = (state / ADDRESS_FILE).read_text().strip()

    def scrape(self) -> str:
        """The text of /metrics."""
        connection = http.client.HTTPConnection(self.address, timeout=SECONDS)
        try:
            connection.request("GET", "/metrics")
            return connection.getresponse().read().decode()
        finally:
            connection.close()


def value(scraped: str, series: str) -> float | None:
    """The value of a series in a scrape; None where it is not there."""
    found = re.search(rf"^{re.escape(series)} (\S+)$", scraped, re.MULTILINE)
    return None if found is None else float(found[1])


def number(scraped: str, series: str) -> float:
    """The value of a series that must be there."""
    found = value(scraped, series)
    if found is None:
        raise RuntimeError(f"/metrics has no series {series}")
    return found
