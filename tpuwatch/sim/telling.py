"""What a simulator tells a person at a terminal: where it listens, what happens, how it stands."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tpuwatch.export.paper import Paper

_INDENT = 2


def tell_start(paper: Paper, note: Mapping[str, Any], directory: Path, *, own_directory: bool) -> None:
    """Where everything listens, and how to watch it. `own_directory` when it is not the default one."""
    speed = "" if note["speed"] == 1 else f", {note['speed']:g} times as fast as life"
    paper.line(f"tpuwatch sim: {note['scenario']}{speed}", style="bold")
    paper.line()
    rows = {
        "Cloud TPU API": f"{note['tpu']} (gRPC without TLS; operations and Cloud Monitoring too)",
        "metadata": f"http://{note['metadata']}/computeMetadata/v1/",
        "runtime metrics": ", ".join(f"127.0.0.1:{port}" for port in note["runtime_ports"]),
        "control": f"http://{note['control']}/state",
        "this machine": f"worker {note['worker']} of {note['node']}",
    }
    for name, value in rows.items():
        paper.line(f"{name:16}{value}", indent=_INDENT, hang=16)
    paper.line()
    paper.line("To watch it, in another shell:")
    _command(paper, "export " + " ".join(f"{name}={value}" for name, value in note["environment"].items()))
    _command(paper, f"tpuwatch run --config {shlex.quote(note['config'])}")
    where = f" --dir {shlex.quote(str(directory))}" if own_directory else ""
    paper.line("To break it, and to end it:")
    _command(paper, f"tpuwatch sim node {note['node'].rpartition('/')[2]} lie{where}")
    _command(paper, "Ctrl-C")
    paper.line()


def _command(paper: Paper, text: str) -> None:
    """In one line, however long: it is to be copied."""
    paper.row(f"{' ' * _INDENT}{text}", style="blue")


def tell_step(paper: Paper, at: float, happened: str) -> None:
    """One step of the time line."""
    for number, line in enumerate(happened.splitlines() or [""]):
        paper.line(f"{'' if number else f'{at:.1f} s':>10}  {line}", hang=12)


def tell_state(paper: Paper, state: Mapping[str, Any], shown_nodes: int) -> None:
    """How a simulator stands: time line, faults, nodes."""
    steps = state["steps"]
    following = steps["next_in_seconds"]
    paper.line(f"{state['scenario']}: {state['elapsed_seconds']:.1f} s", style="bold")
    paper.line(
        f"{steps['played']} of {steps['total']} steps done"
        + (f", the next in {following:.1f} s" if following is not None else "")
    )
    for fault in state["faults"]:
        told = ", ".join(f"{key} {value}" for key, value in fault.items() if value not in ("", None, False, [], 0.0))
        paper.line(f"fault: {told}", hang=2, style="yellow")
    paper.line(f"{state['nodes_total']} nodes: " + ", ".join(f"{n} {name}" for name, n in state["states"].items()))
    for node in state["nodes"][:shown_nodes]:
        paper.line(_node(node), indent=_INDENT, hang=4, style="red" if node["hangs"] else "")
    if state["nodes_total"] > shown_nodes:
        paper.line(f"… and {state['nodes_total'] - shown_nodes} more", indent=_INDENT, style="dim")


def _node(node: Mapping[str, Any]) -> str:
    parts = [f"{node['state']} {node['health']}".strip()]
    parts += [f"{count} {phase}" for phase, count in node["workloads"].items()]
    parts += [word for word in ("hangs", "lies", "preempted") if node[word]]
    parts += [f"maintenance {node['maintenance']}"] if node["maintenance"] else []
    return f"{node['name']} ({node['zone']}, {node['accelerator']}): {', '.join(parts)}"
