"""Output of `tpuwatch sim` at a terminal: addresses, steps and state."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tpuwatch.terminal import Console

_INDENT = 2


def print_start(console: Console, info: Mapping[str, Any], directory: Path, *, own_directory: bool) -> None:
    """Print all addresses and how to monitor them. `own_directory`: not the default directory."""
    speed = "" if info["speed"] == 1 else f", {info['speed']:g} times real time"
    console.line(f"tpuwatch sim: {info['scenario']}{speed}", style="bold")
    console.line()
    rows = {
        "Cloud TPU API": f"{info['tpu']} (gRPC without TLS; operations and Cloud Monitoring too)",
        "as REST": f"{info['rest']} (for gcloud, and clients that speak JSON)",
        "metadata": f"http://{info['metadata']}/computeMetadata/v1/",
        "runtime metrics": ", ".join(f"127.0.0.1:{port}" for port in info["runtime_ports"]),
        "control": f"http://{info['control']}/state",
        "this machine": f"worker {info['worker']} of {info['node']}",
    }
    for name, value in rows.items():
        console.line(f"{name:16}{value}", indent=_INDENT, hang=16)
    console.line()
    console.line("To watch it, in another shell:")
    _command(console, f"tpuwatch run --config {shlex.quote(info['config'])}")
    where = f" --dir {shlex.quote(str(directory))}" if own_directory else ""
    console.line("To break it, and to end it:")
    _command(console, f"tpuwatch sim node {info['node'].rpartition('/')[2]} lie{where}")
    _command(console, "Ctrl-C")
    console.line()


def _command(console: Console, text: str) -> None:
    """Print a command on one line, so that it can be copied."""
    console.row(f"{' ' * _INDENT}{text}", style="blue")


def print_step(console: Console, at: float, outcome: str) -> None:
    """Print one step of the time line."""
    for number, line in enumerate(outcome.splitlines() or [""]):
        console.line(f"{'' if number else f'{at:.1f} s':>10}  {line}", hang=12)


def print_state(console: Console, state: Mapping[str, Any], shown_nodes: int) -> None:
    """Print a simulator's state: time line, faults, nodes."""
    steps = state["steps"]
    following = steps["next_in_seconds"]
    console.line(f"{state['scenario']}: {state['elapsed_seconds']:.1f} s", style="bold")
    console.line(
        f"{steps['played']} of {steps['total']} steps done"
        + (f", the next in {following:.1f} s" if following is not None else "")
    )
    for fault in state["faults"]:
        fields = ", ".join(f"{key} {value}" for key, value in fault.items() if value not in ("", None, False, [], 0.0))
        console.line(f"fault: {fields}", hang=2, style="yellow")
    console.line(f"{state['nodes_total']} nodes: " + ", ".join(f"{n} {name}" for name, n in state["states"].items()))
    for node in state["nodes"][:shown_nodes]:
        console.line(_describe_node(node), indent=_INDENT, hang=4, style="red" if node["hangs"] else "")
    if state["nodes_total"] > shown_nodes:
        console.line(f"… and {state['nodes_total'] - shown_nodes} more", indent=_INDENT, style="dim")


def _describe_node(node: Mapping[str, Any]) -> str:
    parts = [f"{node['state']} {node['health']}".strip()]
    parts += [f"{count} {phase}" for phase, count in node["workloads"].items()]
    parts += [word for word in ("hangs", "lies", "preempted") if node[word]]
    parts += [f"maintenance {node['maintenance']}"] if node["maintenance"] else []
    return f"{node['name']} ({node['zone']}, {node['accelerator']}): {', '.join(parts)}"
