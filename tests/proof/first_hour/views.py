"""Every view of one moment: what each command, page, document and alert shows."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from tests.proof.first_hour.machine import ELSEWHERE, OWN, Machine, Shown
from tests.proof.monitoring.stack import Stack

_TRIES: Final = 5
DOCUMENTS: Final = ("status", "events", "findings", "goodput", "launches", "nodes", "restarts", "targets", "tune")

QUICK: Final = (
    "status.80",
    "status.160",
    "status",
    "status-v",
    "top",
    "nodes",
    "page",
    "metrics",
    "api.status",
    "api.nodes",
)

# A new view is one line here, and is then read and checked at each stage.
COMMANDS: Final[dict[str, Callable[[Machine], Shown]]] = {
    "status.80": lambda machine: machine.on_terminal(80, "status"),
    "status.160": lambda machine: machine.on_terminal(160, "status"),
    "status": lambda machine: machine.run("status"),
    "status-v": lambda machine: machine.run("status", "--verbose"),
    "top": lambda machine: machine.run("top", "--once"),
    "events": lambda machine: machine.run("events"),
    "goodput": lambda machine: machine.run("goodput"),
    "nodes": lambda machine: machine.run("nodes"),
    "nodes.problems": lambda machine: machine.run("nodes", "--problems"),
    "nodes.own": lambda machine: machine.run("nodes", OWN),
    "nodes.other": lambda machine: machine.run("nodes", ELSEWHERE),
    "tune": lambda machine: machine.run("tune"),
    "restarts": lambda machine: machine.run("restarts"),
    "diagnose": lambda machine: machine.run("diagnose", *map(str, libtpu_logs(machine)), text="-"),
    "page": lambda machine: machine.ask("/"),
    "page.other": lambda machine: machine.ask(f"/?node={ELSEWHERE}"),  # where the page's link leads
    "metrics": lambda machine: machine.ask("/metrics"),
    **{
        f"api.{name}": lambda machine, name=name: machine.ask(f"/api/v1/{name}")  # type: ignore[misc]
        for name in DOCUMENTS
    },
}


def libtpu_logs(machine: Machine) -> list[str]:
    """libtpu's own log files of all launches; standard input as long as there are none."""
    return sorted(map(str, (machine.simulator / "tpu_logs").glob("*.log.INFO.*"))) or ["-"]


def look(machine: Machine, stack: Stack, names: Iterable[str] = tuple(COMMANDS)) -> dict[str, Shown]:
    """These views of one moment, by name: where the daemon thinks otherwise at the end, they are read again."""
    views = {name: COMMANDS[name] for name in names}
    for _ in range(_TRIES):
        before = _known(machine)
        with ThreadPoolExecutor(2) as pool:
            shown = dict(zip(views, pool.map(lambda view: view(machine), views.values()), strict=True))
        if _known(machine) == before:
            return {**shown, "alerts": Shown(json.dumps(stack.alerts(), indent=1), 0)}
    raise AssertionError(f"{_TRIES} times the daemon thought otherwise at the end of a look than at its beginning")


def _known(machine: Machine) -> tuple[object, ...]:
    """The daemon's headline and verdicts now."""
    status, nodes = machine.api("status"), machine.api("nodes")["nodes"]
    return status["headline"], [(one["node"], one["verdict"]) for one in nodes]


def as_read(name: str, shown: Shown) -> str:
    """The text as a person reads it, on one line; commands are in backquotes."""
    text = shown.text
    if name.startswith("page"):
        text = re.sub(r"<(script|style|template|svg)\b.*?</\1>", " ", text, flags=re.DOTALL)
        text = html.unescape(re.sub(r"<[^>]*>", " ", re.sub(r"</?(?:code|pre)\b[^>]*>", "`", text)))
    elif name.startswith("api.") or name == "alerts":
        text = "\n".join(strings(json.loads(text))) if text.startswith(("{", "[")) else text
    return " ".join(text.split())


def strings(document: object) -> list[str]:
    """All that a JSON document says, each value behind its key."""
    found: list[str] = []

    def walk(value: object, key: str) -> None:
        if isinstance(value, dict):
            for name, inner in value.items():
                walk(inner, name)
        elif isinstance(value, list):
            for inner in value:
                walk(inner, key)
        elif isinstance(value, str):
            found.append(f"{key}: {value}")
        else:
            found.append(f"{key}: {json.dumps(value)}")

    walk(document, "")
    return found
