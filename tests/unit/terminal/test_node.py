"""Nodes as a person reads them at a terminal."""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING

import pytest

from tests.unit.web import samples
from tpuwatch.model.answers import Problem, Signal
from tpuwatch.model.documents.nodes import NodeDocument
from tpuwatch.model.events import Remedy
from tpuwatch.model.signals import Holder, Identity, Known, Runtime
from tpuwatch.model.status import SignalStatus
from tpuwatch.model.verdict import Action, Reason, Unseen, Verdict
from tpuwatch.model.workload import WorkloadKind
from tpuwatch.terminal.console import Console
from tpuwatch.terminal.node import print_machine, print_node, print_nodes, print_other_nodes

if TYPE_CHECKING:
    from tpuwatch.model.judged_node import JudgedNode
    from tpuwatch.model.status import DaemonStatus

ATTACK = "\x1b[2J\u202e\r\n\x07"


def node_text(node: JudgedNode, *, colour: bool = False) -> str:
    stream = io.StringIO()
    print_node(Console(stream, colour=colour, width=80), samples.received(NodeDocument.of(node)), samples.NOW)
    return stream.getvalue()


def machine_text(status: DaemonStatus) -> str:
    stream = io.StringIO()
    print_machine(Console(stream, width=80), samples.received(samples.status_document(status)))
    return stream.getvalue()


def table_text(*nodes: JudgedNode) -> list[str]:
    stream = io.StringIO()
    print_nodes(Console(stream, width=80), [samples.received(NodeDocument.of(node)) for node in nodes], samples.NOW)
    return stream.getvalue().splitlines()


def test_a_last_known_verdict_is_marked_wherever_it_is_printed() -> None:
    unseen = Unseen(Signal.CLOUD, Problem.DENIED, "The account may not list the nodes.")
    node = samples.node("train-2", judgement=samples.judgement(Verdict.NODE_STUCK, node="train-2", unseen=unseen))
    assert "node_stuck,last_known" in table_text(node)[1].split()
    assert "us-central2-b/train-2: node_stuck (last known) since " in node_text(node)
    stream = io.StringIO()
    print_other_nodes(Console(stream, width=80), [samples.received(NodeDocument.of(node))])
    assert "us-central2-b/train-2: node_stuck (last known)." in stream.getvalue()


def test_a_bad_node_without_steps_prints_the_action_that_would_help() -> None:
    judgement = samples.judgement(Verdict.NODE_STUCK, remedy=(), action=Action.MANUAL, since=None)
    text = node_text(samples.node("this-vm", judgement=judgement))
    assert text.startswith("us-central2-b/this-vm: node_stuck (medium)\n")
    assert text.endswith("   Action: manual.\n")


def test_colours_follow_the_verdict() -> None:
    assert node_text(samples.node(verdict=Verdict.GONE), colour=True).startswith("\x1b[1;31mtrain-1: gone")
    assert node_text(samples.node(verdict=Verdict.UNKNOWN), colour=True).startswith("\x1b[1;33mtrain-1: unknown")
    assert node_text(samples.node(verdict=Verdict.HEALTHY), colour=True).startswith("\x1b[1;32mtrain-1: healthy")
    assert node_text(samples.node(verdict=Verdict.IDLE), colour=True).startswith("\x1b[1mtrain-1: idle")


def test_whatever_others_wrote_does_not_steer_the_terminal() -> None:
    judgement = samples.judgement(
        Verdict.GONE,
        summary=ATTACK,
        reasons=(Reason(Signal.LOGS, ATTACK),),
        contradictions=(ATTACK,),
        missing=(ATTACK,),
        remedy=(Remedy(ATTACK, ATTACK),),
    )
    hostile = samples.node(ATTACK, judgement=judgement, zone=ATTACK, cloud=samples.cloud_node(state=ATTACK))
    printed = node_text(hostile) + "\n".join(table_text(hostile))
    assert not set(printed) & (set(ATTACK) - {"\n", "[", "2", "J"})


# -- this machine


def test_a_node_of_kubernetes_lacks_no_node_of_the_api() -> None:
    text = machine_text(samples.status(identity=Identity(kubernetes=Known("gke-pool-1", "kubernetes"))))
    assert text.startswith(
        "   Machine: node gke-pool-1 of Kubernetes (kubernetes); unknown: project, zone,\n     worker,"
    )


def test_unknown_facts_are_not_printed() -> None:
    assert machine_text(samples.status()) == ""
    assert machine_text(samples.status(identity=Identity())).startswith("   Machine: unknown: project, zone, node, ")
    assert machine_text(samples.status(runtime=Runtime(()), host=samples.host(holders=()))) == ""


def test_a_problem_of_a_signal_is_printed_once() -> None:
    detail = "The Cloud TPU API did not answer within 10 s."
    signal = SignalStatus("cloud", None, samples.NOW, Problem.TIMEOUT, detail)
    missing = f"The Cloud TPU API did not answer in time: {detail}"
    node = samples.node(judgement=samples.judgement(Verdict.UNKNOWN, missing=(missing, "Something else.")))
    status = samples.status(node=node, signals=(signal,))
    assert machine_text(status) == f"   cloud: {detail} It has not answered yet.\n"
    stream = io.StringIO()
    signals = samples.received(samples.status_document(status)).signals
    print_node(Console(stream, width=80), samples.received(NodeDocument.of(node)), samples.NOW, signals=signals)
    assert detail not in stream.getvalue()
    assert "Not known: Something else." in stream.getvalue()
    assert detail in " ".join(node_text(node).split())


def test_a_step_that_helps_where_nothing_is_wrong_has_no_action() -> None:
    remedy = (Remedy("Enable the API.", ""),)
    printed = node_text(samples.node(judgement=samples.judgement(Verdict.HEALTHY, action=Action.NONE, remedy=remedy)))
    assert "   What to do:\n" in printed


def test_other_nodes_that_are_bad_have_a_line_each() -> None:
    stream = io.StringIO()
    node = samples.node("train-2", Verdict.GONE)
    print_other_nodes(Console(stream, width=80), [samples.received(NodeDocument.of(node))])
    printed = " ".join(stream.getvalue().split())
    assert printed.startswith("Other node us-central2-b/train-2: gone. ")
    assert printed.endswith("The reasons: tpuwatch nodes us-central2-b/train-2")


def test_only_the_first_holders_are_printed() -> None:
    holders = tuple(Holder(pid, ATTACK, ATTACK, None, ()) for pid in range(1, 6))
    printed = machine_text(
        samples.status(host=samples.host(holders=holders), identity=Identity(node=Known(ATTACK, "config")))
    )
    assert "Process 3 of" in printed
    assert "Process 4 of" not in printed
    assert "2 more processes hold the TPU; --json lists them." in printed
    assert not set(printed) & {"\x1b", "\u202e", "\r", "\x07"}


# -- the table


def test_one_line_for_each_node_in_columns() -> None:
    assert table_text(
        samples.node("train-2", Verdict.PREEMPTED, cloud=samples.cloud_node(state="PREEMPTED", health="")),
        samples.node("train-3", Verdict.UNKNOWN, cloud=None, zone=""),
        samples.node(),
    ) == [
        "NODE     ZONE           ACCELERATOR  CLOUD          VERDICT    AGE  ACTION",
        "train-2  us-central2-b  v5litepod-4  PREEMPTED      preempted  12m  restart_runtime",
        "train-3  -              -            -              unknown    12m  restart_runtime",
        "train-1  us-central2-b  v5litepod-4  READY/HEALTHY  healthy    2h   none",
    ]


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (WorkloadKind.SERVING, "idle (serving)"),
        (WorkloadKind.INTERACTIVE, "idle (interactive)"),
        (None, "idle"),
        (WorkloadKind.TRAINING, "idle"),
    ],
)
def test_the_kind_of_workload_stands_beside_the_verdict(kind: WorkloadKind | None, words: str) -> None:
    node = samples.node(judgement=samples.judgement(Verdict.IDLE, kind=kind))
    assert node_text(node).startswith(f"train-1: {words} since ")
    stream = io.StringIO()
    print_nodes(Console(stream, width=200), [samples.received(NodeDocument.of(node))], samples.NOW, wide=True)
    header, line = stream.getvalue().splitlines()
    assert line.split()[header.split().index("KIND")] == (kind.value if kind else "-")


@pytest.mark.parametrize(("since", "printed"), [(None, "-"), (samples.NOW + 60, "0s"), (samples.NOW - 90, "1m30s")])
def test_ages_in_the_table(since: float | None, printed: str) -> None:
    _, row = table_text(samples.node(judgement=samples.judgement(since=since)))
    assert re.split("  +", row)[-2] == printed
